import { closeSync, fchmodSync, openSync, rmSync, statSync, writeFileSync } from "node:fs";
import { release } from "node:os";
import { gzipSync } from "node:zlib";
import { create, type JsonValue, toJson } from "@bufbuild/protobuf";
import { type CallOptions, createClient, type Transport } from "@connectrpc/connect";
import { GlobalWatchReqSchema, Sets } from "@kpng/model/gen/globalv1/api_pb.ts";
import { ChangeSchema } from "@kpng/model/gen/kpng/inspect/v1/change_pb.ts";
import { NodeSchema } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import { EndpointDecisionSchema } from "@kpng/model/gen/kpng/inspect/v1/explain_pb.ts";
import { GetStatusResponseSchema } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { SubscriberSchema } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { Feature, type OpItem } from "@kpng/model/gen/localv1/api_pb.ts";
import { type OptionSpec, parseDurationMs, parseNodeName, parseNonEmptyText } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { Wakeup } from "@kpng/process/wait.ts";
import { formatRecordingLine, type RecordedRows, type RecordingLine } from "@kpng/watcher/source/replay/recording.ts";
import packageJson from "../../package.json" with { type: "json" };
import type { Options } from "../context/command-context.ts";
import { type InspectCommand, inspectClient, pageSize, readNodeEndpoints, readPages } from "./client.ts";
import { findFindings, readWatcherState } from "./findings.ts";

/**
 * `kpng record`: writes the state of a watcher, and its changes for some time, to a recording. `kpng replay` serves a
 * recording like a cluster.
 */
export const recordCommand: InspectCommand = {
  name: "record",
  description: "record the state of a watcher and its changes, in a file that kpng replay reads",
  options: recordOptions("kpng-recording.jsonl.gz", "KPNG_RECORDING", 60_000),
  examples: `
The file contains names, addresses, labels and errors of the cluster: review it before you share it. If the recording
ends early, by Ctrl-C or because the watcher is gone, the file is kept.

Examples:
  COMMAND --for 5m -o problem.jsonl.gz
  COMMAND --for 0 --node n1
  kpng replay -i problem.jsonl.gz get services
  kpng replay -i problem.jsonl.gz --speed 10 to-api
`,
  run: (transport, _words, options, signal) => writeRecording(transport, options, signal),
};

/**
 * `kpng bug-report`: collects in one file what a maintainer asks for: a recording with also the state of all nodes,
 * findings and versions. `kpng replay` reads it.
 */
export const bugReportCommand: InspectCommand = {
  name: "bug-report",
  description: "record a watcher with the state of all nodes, findings and versions, in one file",
  options: recordOptions("kpng-bug-report.jsonl.gz", "KPNG_BUG_REPORT", 0),
  examples: `
The file is a recording with more rows. It contains names, addresses, labels and errors of the cluster: review it before
you share it, and attach the log of the backend and the output of kpng get backend and kpng get rules.

Examples:
  COMMAND --for 1m --node n1
  gunzip -c kpng-bug-report.jsonl.gz | jq 'select(.of == "findings").rows[]'
`,
  run: (transport, _words, options, signal) =>
    writeRecording(transport, options, signal, async (write) => {
      const state = await readWatcherState(inspectClient(transport));
      const { version: nodejs, arch: architecture } = process;
      const watcher = state.status.version;
      write("versions", [{ kpng: packageJson.version, nodejs, kernel: release(), architecture, watcher }]);
      write(
        "nodes",
        state.nodes.map((node) => toJson(NodeSchema, node)),
      );
      write(
        "findings",
        findFindings(state, { hasNodes: true }).map((finding) => ({ ...finding })),
      );
    }),
};

function recordOptions(file: string, env: string, durationMs: number): readonly OptionSpec[] {
  return [
    {
      flags: "-o, --output <file>",
      description: "file to write; compressed if its name ends in .gz",
      default: file,
      env,
      parse: parseNonEmptyText,
    },
    {
      flags: "--for <duration>",
      description: "how long to record changes (0: only the state)",
      default: durationMs,
      parse: parseDurationMs,
    },
    {
      flags: "--node <name>",
      description: "also record how this node uses each endpoint, with the reason",
      default: "",
      parse: parseNodeName,
    },
  ];
}

type WriteRows = (of: RecordedRows, rows: readonly JsonValue[]) => void;

/**
 * Records a watcher. If `signal` aborts, or a request fails after the state was recorded, the recording ends early and
 * is kept. Each complete batch is in the file at once, so that it is not lost if the process is killed. `writeMore`
 * adds rows at the end.
 *
 * Errors: REQUEST_FAILED if the file cannot be written; those of a request. No file remains of a request that fails
 * before the state was recorded.
 */
async function writeRecording(
  transport: Transport,
  options: Options,
  signal: AbortSignal,
  writeMore: (write: WriteRows) => Promise<void> = async () => undefined,
): Promise<void> {
  const [path, node, durationMs] = [String(options.output), String(options.node), Number(options.for)];
  const startMs = Date.now();
  const file = new RecordingFile(path);
  const client = inspectClient(transport);
  const atMs = (): number => Date.now() - startMs;
  const write: WriteRows = (of, rows) => file.write({ kind: "rows", of, atMs: atMs(), rows });
  const writeSubscribers = async (call: CallOptions = {}): Promise<void> => {
    const subscribers = await readPages(
      (pageToken) => client.listSubscribers({ node, pageSize, pageToken }, call),
      (page) => page.subscribers,
    );
    write(
      "subscribers",
      subscribers.map((one) => toJson(SubscriberSchema, one)),
    );
  };
  let hasState = false;
  try {
    const status = toJson(GetStatusResponseSchema, await client.getStatus({}));
    const recordedBy = `kpng ${packageJson.version}`;
    file.write({ kind: "head", recordedBy, beganAt: new Date(startMs).toISOString(), status });
    await writeSubscribers();
    await recordOps(transport, durationMs, signal, (op) => {
      file.write({ kind: "op", atMs: atMs(), op });
      if (op.Op.case !== "Sync") return;
      hasState = true;
      file.flush();
    });
    const call = { timeoutMs: lastRowsMs };
    await writeSubscribers(call);
    const changes = await readPages(
      (pageToken) => client.listChanges({ pageSize, pageToken }, call),
      (page) => page.changes,
    );
    write(
      "changes",
      changes.map((change) => toJson(ChangeSchema, change)),
    );
    if (node !== "") {
      const decisions = await readNodeEndpoints(client, { nodeName: node }, call);
      write(
        "node-endpoints",
        decisions.map((decision) => toJson(EndpointDecisionSchema, decision)),
      );
    }
    await writeMore(write);
  } finally {
    file.close(hasState);
    if (hasState) process.stderr.write(`recording written to ${path}\n`);
  }
}

/**
 * Limit for each request after the changes are recorded, in milliseconds. The changes are worth more than the rows at
 * the end, which a watcher that hangs never sends.
 */
const lastRowsMs = 10_000;

/**
 * Passes the operations of the global stream to `onOp`, whole batches only, for `durationMs` or until `signal` aborts.
 * The first batch, which is the whole state, is always awaited; only the wait for further changes ends early. Errors:
 * those of the stream; REQUEST_FAILED if the watcher ends it.
 */
async function recordOps(
  transport: Transport,
  durationMs: number,
  signal: AbortSignal,
  onOp: (op: OpItem) => void,
): Promise<void> {
  const elapsed = new AbortController();
  const timer = setTimeout(() => elapsed.abort(), durationMs);
  const stop = AbortSignal.any([signal, elapsed.signal]);
  const streamEnd = new AbortController();
  const requested = new Wakeup();
  let credit = 1;
  async function* requests() {
    while (!streamEnd.signal.aborted) {
      if (credit === 0) await requested.wait(streamEnd.signal);
      if (credit === 0) continue;
      credit -= 1;
      const Subscriber = { Name: "kpng record", Version: packageJson.version, Observes: true };
      yield create(GlobalWatchReqSchema, { Features: [Feature.Extended], Subscriber });
    }
  }
  const endStream = (): void => streamEnd.abort();
  try {
    let hasState = false;
    for await (const op of createClient(Sets, transport).watch(requests(), { signal: streamEnd.signal })) {
      onOp(op);
      if (op.Op.case !== "Sync") continue;
      if (stop.aborted) return;
      if (!hasState) stop.addEventListener("abort", endStream, { once: true });
      hasState = true;
      credit += 1;
      requested.wake();
    }
    if (!stop.aborted) throw new ProcessError("REQUEST_FAILED", "the watcher ended the stream early");
  } catch (error) {
    if (!streamEnd.signal.aborted) throw error;
  } finally {
    clearTimeout(timer);
    streamEnd.abort();
  }
}

/**
 * A recording that is being written, readable only by its owner; compressed if its name ends in ".gz". Up to
 * {@link maxPendingLength} characters are held in memory.
 *
 * Errors: REQUEST_FAILED if the file cannot be written.
 */
class RecordingFile {
  readonly #path: string;
  readonly #file: number;
  #pending = "";

  constructor(path: string) {
    // A device would be removed with an incomplete recording.
    if (statSync(path, { throwIfNoEntry: false })?.isFile() === false) {
      throw new ProcessError("REQUEST_FAILED", `cannot write ${path}: it exists and is not a regular file`);
    }
    this.#path = path;
    try {
      this.#file = openSync(path, "w", 0o600);
      // It may have existed with other rights.
      fchmodSync(this.#file, 0o600);
    } catch (cause) {
      throw new ProcessError("REQUEST_FAILED", `cannot write ${path}`, { cause });
    }
  }

  write(line: RecordingLine): void {
    this.#pending += `${formatRecordingLine(line)}\n`;
    if (this.#pending.length > maxPendingLength) this.flush();
  }

  flush(): void {
    try {
      // A gzip file may have several members, each compressed on its own.
      writeFileSync(this.#file, this.#path.endsWith(".gz") ? gzipSync(this.#pending) : this.#pending);
    } catch (cause) {
      throw new ProcessError("REQUEST_FAILED", `cannot write ${this.#path}`, { cause });
    }
    this.#pending = "";
  }

  /** Closes the file; removes it unless it is to be kept. */
  close(isKept: boolean): void {
    if (isKept) this.flush();
    closeSync(this.#file);
    if (!isKept) rmSync(this.#path, { force: true });
  }
}

/** Long enough to compress well; short enough to be compressed within some 20 ms. */
const maxPendingLength = 1 << 20;
