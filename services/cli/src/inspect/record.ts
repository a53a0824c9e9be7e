import { closeSync, fchmodSync, fstatSync, openSync, rmSync, statSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { create, type DescMessage, type MessageShape, toJson } from "@bufbuild/protobuf";
import { type CallOptions, createClient, type Transport } from "@connectrpc/connect";
import { GlobalWatchReqSchema, Sets } from "@kpng/model/gen/globalv1/api_pb.ts";
import { ChangeSchema } from "@kpng/model/gen/kpng/inspect/v1/change_pb.ts";
import { EndpointDecisionSchema } from "@kpng/model/gen/kpng/inspect/v1/explain_pb.ts";
import { GetStatusResponseSchema } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { SubscriberSchema } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { Feature, type OpItem } from "@kpng/model/gen/localv1/api_pb.ts";
import { parseDurationMs, parseNodeName, parseNonEmptyText } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { Wakeup } from "@kpng/process/wait.ts";
import { formatRecordingLine, type RecordedRows, type RecordingLine } from "@kpng/watcher/source/replay/recording.ts";
import packageJson from "../../package.json" with { type: "json" };
import { type InspectCommand, inspectClient, pageSize, readNodeEndpoints, readPages, showProgress } from "./client.ts";
import { formatMs } from "./print/text.ts";

/**
 * `kpng record`: writes the state of a watcher, and its changes for some time, to a recording. `kpng replay` serves a
 * recording like a cluster, and `kpng trace --recording` prints its changes.
 */
export const recordCommand: InspectCommand = {
  name: "record",
  description: "record the state of a watcher and its changes, in a file that kpng replay reads",
  options: [
    {
      flags: "-o, --output <file>",
      description: "file to write; compressed if its name ends in .gz",
      default: "kpng-recording.jsonl.gz",
      env: "KPNG_RECORDING",
      parse: parseNonEmptyText,
    },
    {
      flags: "--for <duration>",
      description: "how long to record changes (0: only the state)",
      default: 60_000,
      parse: parseDurationMs,
    },
    {
      flags: "--node <name>",
      description: "also record how this node uses each endpoint, with the reason",
      default: "",
      parse: parseNodeName,
    },
  ],
  examples: `
The file contains names, addresses, labels and errors of the cluster: review it before you share it. If the recording
ends early, by Ctrl-C or because the watcher is gone, the file is kept.

Examples:
  COMMAND --for 5m -o problem.jsonl.gz
  COMMAND --for 0 --node n1
  kpng replay -i problem.jsonl.gz get services
  kpng replay -i problem.jsonl.gz --speed 10 to-api
  kpng trace --recording problem.jsonl.gz
`,
  run: async (transport, _words, options, signal) => {
    const path = String(options.output);
    const record = { path, node: String(options.node), durationMs: Number(options.for) };
    await writeRecording(transport, record, signal, () => process.stderr.write(`recording written to ${path}\n`));
  },
};

interface RecordOptions {
  readonly path: string;
  /** Node whose use of each endpoint is recorded too; "" for none. */
  readonly node: string;
  /** How long changes are recorded, in milliseconds; 0 for only the state. */
  readonly durationMs: number;
}

/**
 * Records a watcher. If `signal` aborts, or a request fails after the state was recorded, the recording ends early and
 * is kept. Each complete batch is in the file at once, so that it is not lost if the process is killed. `onKept` is
 * called when the recording has ended and is kept.
 *
 * Errors: REQUEST_FAILED if the file cannot be written; those of a request. No file remains of a request that fails
 * before the state was recorded.
 */
export async function writeRecording(
  transport: Transport,
  { path, node, durationMs }: RecordOptions,
  signal: AbortSignal,
  onKept: () => void = () => undefined,
): Promise<void> {
  const startMs = Date.now();
  const file = new RecordingFile(path);
  const client = inspectClient(transport);
  const atMs = (): number => Date.now() - startMs;
  const writeRows = <D extends DescMessage>(of: RecordedRows, schema: D, messages: readonly MessageShape<D>[]): void =>
    file.write({ kind: "rows", of, atMs: atMs(), rows: messages.map((message) => toJson(schema, message)) });
  const writeSubscribers = async (call: CallOptions = {}): Promise<void> => {
    const subscribers = await readPages(
      (pageToken) => client.listSubscribers({ node, pageSize, pageToken }, call),
      (page) => page.subscribers,
    );
    writeRows("subscribers", SubscriberSchema, subscribers);
  };
  let hasState = false;
  let hide = (): void => undefined;
  try {
    const status = toJson(GetStatusResponseSchema, await client.getStatus({}));
    const recordedBy = `kpng ${packageJson.version}`;
    file.write({ kind: "head", recordedBy, beganAt: new Date(startMs).toISOString(), status });
    await writeSubscribers();
    hide = showProgress(() => `recording changes for ${formatMs(durationMs)}; Ctrl-C ends it early`);
    await recordOps(transport, durationMs, signal, (op) => {
      file.write({ kind: "op", atMs: atMs(), op });
      if (op.Op.case !== "Sync") return;
      hasState = true;
      file.flush();
    });
    hide();
    hide = showProgress(() => "asking for the state at the end; Ctrl-C leaves it out");
    const call = { timeoutMs: lastRowsMs };
    await writeSubscribers(call);
    const changes = await readPages(
      (pageToken) => client.listChanges({ pageSize, pageToken }, call),
      (page) => page.changes,
    );
    writeRows("changes", ChangeSchema, changes);
    if (node !== "") {
      const decisions = await readNodeEndpoints(client, { nodeName: node }, call);
      writeRows("node-endpoints", EndpointDecisionSchema, decisions);
    }
  } finally {
    hide();
    file.close(hasState);
    if (hasState) onKept();
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
    this.#file = openPrivateFile(path);
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

/**
 * Creates or empties a file that only its owner may read, also if it existed with other rights. Returns its descriptor.
 * Errors: REQUEST_FAILED.
 */
export function openPrivateFile(path: string): number {
  try {
    const file = openSync(path, "w", 0o600);
    if (fstatSync(file).isFile()) fchmodSync(file, 0o600);
    return file;
  } catch (cause) {
    throw new ProcessError("REQUEST_FAILED", `cannot write ${path}`, { cause });
  }
}
