import { writeFileSync } from "node:fs";
import { release } from "node:os";
import { PassThrough } from "node:stream";
import { gzipSync } from "node:zlib";
import { create, toJson } from "@bufbuild/protobuf";
import { createClient, type Transport } from "@connectrpc/connect";
import { GlobalWatchReqSchema, Sets } from "@kpng/model/gen/globalv1/api_pb.ts";
import { ChangeSchema } from "@kpng/model/gen/kpng/inspect/v1/change_pb.ts";
import { NodeSchema } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import { FindingSchema } from "@kpng/model/gen/kpng/inspect/v1/finding_pb.ts";
import { GetStatusResponseSchema } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { SubscriberSchema } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { Feature, type OpItem } from "@kpng/model/gen/localv1/api_pb.ts";
import { type OptionSpec, parseDurationMs, parseNonEmptyText } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { formatRecordingLine, type RecordingLine } from "@kpng/source/replay/recording.ts";
import packageJson from "../../package.json" with { type: "json" };
import { type InspectClient, type InspectCommand, pageSize, type Question, readPages } from "./client.ts";

/** `kpng record`. `kpng replay` serves a recording as if it were a cluster. */
export const recordCommand: InspectCommand = {
  name: "record",
  options: recordOptions("kpng-recording.jsonl.gz", "KPNG_RECORDING", 60_000),
  examples: `
The file contains names, addresses, labels and errors of the cluster: review it before you share it. If the recording
ends early, by Ctrl-C or because the watcher is gone, the file is kept.

Examples:
  COMMAND --for 5m -o problem.jsonl.gz
  COMMAND --for 0
  kpng replay -i problem.jsonl.gz get services
  kpng replay -i problem.jsonl.gz --speed 10 to-api
`,
  run: (question) => record(question, async () => []),
};

/** `kpng bug-report`: a recording that also contains the state of all nodes, findings and versions. */
export const bugReportCommand: InspectCommand = {
  name: "bug-report",
  options: recordOptions("kpng-bug-report.jsonl.gz", "KPNG_BUG_REPORT", 0),
  examples: `
The file is a recording with more rows: the nodes, findings and versions at its beginning and, with --for, also at its end.
If it ends early, by Ctrl-C or because the watcher is gone, the file is kept, without the rows at the end.

It contains names, addresses, labels and errors of the cluster: review it before you share it, and attach the log of the
backend and the output of kpng get view, kpng get backend and kpng get rules.

Examples:
  COMMAND --for 1m
  gunzip -c kpng-bug-report.jsonl.gz | jq 'select(.of == "findings").rows[]'
`,
  run: (question) => record(question, () => readRows(question.client)),
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
  ];
}

type Rows = Pick<RecordingLine & { readonly kind: "rows" }, "of" | "rows">;

async function readRows(client: InspectClient): Promise<readonly Rows[]> {
  const { version: watcher } = await client.getStatus({});
  const nodes = await readPages(client.listNodes, {}, (page) => page.nodes);
  const { findings } = await client.listFindings({});
  const { version: nodejs, arch: architecture } = process;
  const kpng = packageJson.version;
  const subscribers = await readPages(client.listSubscribers, {}, (page) => page.subscribers);
  const { changes } = await client.listChanges({ pageSize });
  return [
    { of: "subscribers", rows: subscribers.map((one) => toJson(SubscriberSchema, one)) },
    { of: "changes", rows: changes.map((change) => toJson(ChangeSchema, change)) },
    { of: "versions", rows: [{ kpng, nodejs, kernel: release(), architecture, watcher }] },
    { of: "nodes", rows: nodes.map((node) => toJson(NodeSchema, node)) },
    { of: "findings", rows: findings.map((finding) => toJson(FindingSchema, finding)) },
  ];
}

/**
 * Records a watcher, with `rows` at the beginning and, if changes are recorded, again at the end. If `signal` aborts, or
 * if a request fails after the state was recorded, the recording ends early, without the rows at the end, and is kept.
 * Each complete batch is written to the file immediately, so that it is not lost if the process is killed. Until the first
 * batch is complete, the cluster state is held in memory and there is no file.
 *
 * Errors: REQUEST_FAILED if the file cannot be written; the error of a failed request.
 */
async function record(
  { client, transport, options, signal }: Question,
  rows: () => Promise<readonly Rows[]>,
): Promise<void> {
  const path = String(options.output);
  const durationMs = Number(options.for);
  const startMs = Date.now();
  const atMs = (): number => Date.now() - startMs;
  let lines: RecordingLine[] = [];
  let isBegun = false;
  const flush = (): void => {
    const text = lines.map((line) => `${formatRecordingLine(line)}\n`).join("");
    lines = [];
    try {
      // A gzip file may have several members, each compressed separately.
      const bytes = path.endsWith(".gz") ? gzipSync(text) : text;
      writeFileSync(path, bytes, { flag: isBegun ? "a" : "w", mode: 0o600 });
    } catch (cause) {
      throw new ProcessError("REQUEST_FAILED", `cannot write ${path}`, { cause });
    }
    isBegun = true;
  };
  // The process does not wait for the rest after Ctrl-C; see `withRequestErrors`.
  signal.addEventListener("abort", () => {
    if (isBegun) return;
    process.stderr.write("interrupted before the state was received: nothing is recorded\n");
    process.exitCode = 1;
  });
  const addRows = async (): Promise<void> => {
    for (const one of await rows()) lines.push({ kind: "rows", atMs: atMs(), ...one });
  };
  const status = toJson(GetStatusResponseSchema, await client.getStatus({}));
  const beganAt = new Date(startMs).toISOString();
  lines.push({ kind: "head", recordedBy: `kpng ${packageJson.version}`, beganAt, status });
  await addRows();
  try {
    await recordOps(transport, durationMs, signal, (op) => {
      lines.push({ kind: "op", atMs: atMs(), op });
      if (op.Op.case === "Sync") flush();
    });
    // Drops the operations of an incomplete batch.
    lines = [];
    if (durationMs > 0 && !signal.aborted) await addRows();
    if (lines.length > 0) flush();
  } finally {
    if (isBegun) process.stderr.write(`recording written to ${path}\n`);
  }
}

/**
 * Passes the operations of the global stream to `onOp` for `durationMs` or until `signal` aborts. The first batch,
 * which is the whole state, is always awaited; only the wait for further changes ends early. Errors: stream errors;
 * REQUEST_FAILED if the watcher ends the stream.
 */
async function recordOps(
  transport: Transport,
  durationMs: number,
  signal: AbortSignal,
  onOp: (op: OpItem) => void,
): Promise<void> {
  const stop = AbortSignal.any([signal, AbortSignal.timeout(durationMs)]);
  const end = new AbortController();
  const endStream = (): void => end.abort();
  const Subscriber = { Name: "kpng record", Version: packageJson.version, Observes: true };
  const request = create(GlobalWatchReqSchema, { Features: [Feature.Extended], Subscriber });
  const requests = new PassThrough({ objectMode: true });
  requests.write(request);
  try {
    for await (const op of createClient(Sets, transport).watch(requests, { signal: end.signal })) {
      onOp(op);
      if (op.Op.case !== "Sync") continue;
      if (stop.aborted) return;
      // The first batch is always awaited. To add the listener again has no effect.
      stop.addEventListener("abort", endStream);
      // The watcher sends one batch per request.
      requests.write(request);
    }
    if (!end.signal.aborted) throw new ProcessError("REQUEST_FAILED", "the watcher ended the stream early");
  } catch (error) {
    if (!end.signal.aborted) throw error;
  } finally {
    end.abort();
  }
}
