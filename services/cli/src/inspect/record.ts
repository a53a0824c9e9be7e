import { closeSync, fchmodSync, fstatSync, openSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { create, type DescMessage, type JsonValue, type MessageShape, toJson } from "@bufbuild/protobuf";
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
import { formatMs } from "./print/text.ts";
import {
  type InspectCommand,
  inspectClient,
  pageSize,
  readNodeEndpoints,
  readPages,
  showProgress,
} from "./query/client.ts";

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
    const onWritten = (): void => void process.stderr.write(`recording written to ${path}\n`);
    const record = { path, node: String(options.node), durationMs: Number(options.for), onWritten };
    const { failure } = await writeRecording(transport, record, signal);
    if (failure !== undefined) throw failure;
  },
};

interface RecordOptions {
  readonly path: string;
  /** Node whose use of each endpoint is recorded too; "" for none. */
  readonly node: string;
  /** How long changes are recorded, in milliseconds; 0 for only the state. */
  readonly durationMs: number;
  /** Called when the file is complete. */
  readonly onWritten?: (() => void) | undefined;
}

/**
 * Records a watcher. `kpng record` and `kpng bug-report` call it. If `signal` aborts, a request fails after the state
 * was recorded, or the process exits, the recording ends early and is kept; `failure` is the error of the request.
 *
 * Errors, after which no file remains: REQUEST_FAILED if the file cannot be written; those of a request before the
 * state was recorded.
 */
export async function writeRecording(
  transport: Transport,
  { path, node, durationMs, onWritten }: RecordOptions,
  signal: AbortSignal,
): Promise<{ readonly failure: unknown }> {
  const startMs = Date.now();
  const file = createRecordingFile(path);
  const client = inspectClient(transport);
  const writeRows = <D extends DescMessage>(
    of: RecordedRows,
    schema: D,
    messages: readonly MessageShape<D>[],
  ): void => {
    const rows = messages.map((message): JsonValue => toJson(schema, message));
    file.write({ kind: "rows", of, atMs: Date.now() - startMs, rows });
  };
  const writeSubscribers = async (call: CallOptions = {}): Promise<void> => {
    const subscribers = await readPages(
      (pageToken) => client.listSubscribers({ node, pageSize, pageToken }, call),
      (page) => page.subscribers,
    );
    writeRows("subscribers", SubscriberSchema, subscribers);
  };
  let hasState = false;
  let failure: unknown;
  let hide = (): void => undefined;
  const endFile = (): void => {
    if (hasState) file.complete();
    else file.discard();
    if (hasState) onWritten?.();
  };
  // A second signal ends the process at once (`runProcess`). What was recorded must not be lost then.
  process.once("exit", endFile);
  try {
    const status = toJson(GetStatusResponseSchema, await client.getStatus({}));
    const recordedBy = `kpng ${packageJson.version}`;
    file.write({ kind: "head", recordedBy, beganAt: new Date(startMs).toISOString(), status });
    await writeSubscribers();
    hide = showProgress(() => `recording changes for ${formatMs(durationMs)}; Ctrl-C ends it early`);
    await recordOps(transport, durationMs, signal, async (op) => {
      file.write({ kind: "op", atMs: Date.now() - startMs, op });
      if (op.Op.case === "Sync") hasState = true;
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
  } catch (error) {
    failure = error;
  }
  hide();
  process.off("exit", endFile);
  endFile();
  if (!hasState) throw failure;
  return { failure };
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
export async function recordOps(
  transport: Transport,
  durationMs: number,
  signal: AbortSignal,
  onOp: (op: OpItem) => Promise<void>,
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
      await onOp(op);
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
 * A recording that is being written. It gets its name only when it is complete. All methods are synchronous, so that a
 * process that must end at once can still complete the file.
 */
interface RecordingFile {
  write(line: RecordingLine): void;
  /** Completes the file and gives it its name, or removes it if it cannot be written. */
  complete(): void;
  /** Removes the incomplete file. */
  discard(): void;
}

/**
 * Creates a recording at `path` with a suffix, readable only by its owner; compressed if `path` ends in ".gz". Up to
 * {@link maxPendingLength} characters are held in memory.
 *
 * Errors, also of its methods: REQUEST_FAILED if the file cannot be written.
 *
 * `readRecording` of the watcher reads such files.
 */
export function createRecordingFile(path: string): RecordingFile {
  // A rename would replace a device such as /dev/null by a file.
  if (statSync(path, { throwIfNoEntry: false })?.isFile() === false) {
    throw new ProcessError("REQUEST_FAILED", `cannot write ${path}: it exists and is not a regular file`);
  }
  const partPath = `${path}.part`;
  const file = openPrivateFile(partPath);
  let pending = "";
  const flush = (): void => {
    try {
      // A gzip file may have several members, each compressed on its own.
      writeFileSync(file, path.endsWith(".gz") ? gzipSync(pending) : pending);
    } catch (cause) {
      throw new ProcessError("REQUEST_FAILED", `cannot write ${partPath}`, { cause });
    }
    pending = "";
  };
  const discard = (): void => {
    closeSync(file);
    rmSync(partPath, { force: true });
  };
  return {
    write: (line) => {
      pending += `${formatRecordingLine(line)}\n`;
      if (pending.length > maxPendingLength) flush();
    },
    complete: () => {
      try {
        flush();
      } catch (error) {
        discard();
        throw error;
      }
      closeSync(file);
      renameSync(partPath, path);
    },
    discard,
  };
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
