import { once } from "node:events";
import { createWriteStream, renameSync, rmSync, statSync } from "node:fs";
import { finished } from "node:stream/promises";
import { createGzip } from "node:zlib";
import { create, type DescMessage, type JsonValue, type MessageShape, toJson } from "@bufbuild/protobuf";
import { createClient, type Transport } from "@connectrpc/connect";
import { GlobalWatchReqSchema, Sets } from "@kpng/model/gen/globalv1/api_pb.ts";
import { ChangeSchema } from "@kpng/model/gen/kpng/inspect/v1/change_pb.ts";
import { EndpointDecisionSchema } from "@kpng/model/gen/kpng/inspect/v1/explain_pb.ts";
import { GetStatusResponseSchema } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { SubscriberSchema } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { Feature } from "@kpng/model/gen/localv1/api_pb.ts";
import { parseDurationMs, parseNodeName, parseSomeText } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { Wakeup } from "@kpng/process/wait.ts";
import { formatRecordingLine, type RecordingLine } from "@kpng/watcher/source/replay/recording.ts";
import packageJson from "../../package.json" with { type: "json" };
import { inspectClient, pageSize, readPages, unknownNode } from "./client.ts";
import type { ClientCommand } from "./client-command.ts";

export const recordCommand: ClientCommand = {
  name: "record",
  description: "write what a watcher holds, and what changes for a while, into a file that can be replayed",
  words: "",
  options: [
    {
      flags: "-o, --output <file>",
      description: "where to write, packed if the name ends in .gz",
      default: "kpng-recording.jsonl.gz",
      env: "KPNG_RECORDING",
      parse: parseSomeText,
    },
    {
      flags: "--for <duration>",
      description: "how long to record (0: the state alone)",
      default: 60_000,
      parse: parseDurationMs,
    },
    {
      flags: "--node <name>",
      description: "also what this node does with each endpoint, and why",
      default: "",
      parse: parseNodeName,
    },
  ],
  examples: `
The file holds the names, addresses, labels and errors of the cluster: look at it before you give it away. Ctrl-C ends the
recording early and keeps it.

Examples:
  COMMAND --for 5m -o problem.jsonl.gz
  COMMAND --for 0 --node n1
  kpng replay -i problem.jsonl.gz get services
  kpng replay -i problem.jsonl.gz --speed 10 to-api
  kpng trace --recording problem.jsonl.gz
`,
  run: async (transport, _word, options, signal) => {
    const path = String(options.output);
    const beganAtMs = Date.now();
    const file = openFile(path);
    try {
      const client = inspectClient(transport);
      const status = await client.getStatus({});
      const head = { recordedBy: `kpng ${packageJson.version}`, beganAt: new Date(beganAtMs).toISOString() };
      await file.write({ kind: "head", ...head, status: toJson(GetStatusResponseSchema, status) });
      const rows = async <D extends DescMessage>(
        of: Extract<RecordingLine, { kind: "rows" }>["of"],
        schema: D,
        messages: readonly MessageShape<D>[],
      ): Promise<void> => {
        const json = messages.map((message): JsonValue => toJson(schema, message));
        await file.write({ kind: "rows", of, atMs: Date.now() - beganAtMs, rows: json });
      };
      const subscribers = () =>
        readPages(
          (pageToken) => client.listSubscribers({ pageSize, pageToken, node: String(options.node) }),
          (page) => page.subscribers,
        );
      await rows("subscribers", SubscriberSchema, await subscribers());
      await recordOps(transport, Number(options.for), signal, (op) =>
        file.write({ kind: "op", atMs: Date.now() - beganAtMs, op }),
      );
      await rows("subscribers", SubscriberSchema, await subscribers());
      const changes = await readPages(
        (pageToken) => client.listChanges({ pageSize, pageToken }),
        (page) => page.changes,
      );
      await rows("changes", ChangeSchema, changes);
      const nodeName = String(options.node);
      if (nodeName !== "") {
        let isKnown = true;
        const decisions = await readPages(
          (pageToken) => client.listNodeEndpoints({ nodeName, pageSize, pageToken }),
          (page) => {
            isKnown = page.isNodeKnown;
            return page.decisions;
          },
        );
        if (!isKnown) process.stderr.write(`${unknownNode(nodeName)}\n`);
        await rows("node-endpoints", EndpointDecisionSchema, decisions);
      }
      await file.keep();
    } catch (error) {
      file.discard();
      throw error;
    }
    process.stderr.write(`recorded into ${path}\n`);
  },
};

/** Gives the operations of the global stream to `take` until the time is over or `signal` aborts, whole batches only. */
async function recordOps(
  transport: Transport,
  forMs: number,
  signal: AbortSignal,
  take: (op: Extract<RecordingLine, { kind: "op" }>["op"]) => Promise<void>,
): Promise<void> {
  const enough = new AbortController();
  const timer = setTimeout(() => enough.abort(), forMs);
  const stop = AbortSignal.any([signal, enough.signal]);
  const asked = new Wakeup();
  const over = new AbortController();
  let credit = 1;
  async function* requests() {
    while (!over.signal.aborted) {
      if (credit === 0) await asked.wait(over.signal);
      if (credit === 0) continue;
      credit -= 1;
      yield create(GlobalWatchReqSchema, { Features: [Feature.Extended] });
    }
  }
  const endWaiting = (): void => over.abort();
  try {
    let isWhole = false;
    for await (const op of createClient(Sets, transport).watch(requests(), { signal: over.signal })) {
      await take(op);
      if (op.Op.case !== "Sync") continue;
      if (stop.aborted) return;
      // Now only changes are waited for, and that may end at any time; the state is waited for in any case.
      if (!isWhole) stop.addEventListener("abort", endWaiting, { once: true });
      isWhole = true;
      credit += 1;
      asked.wake();
    }
  } catch (error) {
    if (!over.signal.aborted) throw error;
  } finally {
    clearTimeout(timer);
    over.abort();
  }
}

/** A file that appears under its name when it is complete. Errors: REQUEST_FAILED if it cannot be written. */
function openFile(path: string) {
  // A rename would put a file in the place of a device, such as /dev/null of the whole machine.
  if (statSync(path, { throwIfNoEntry: false })?.isFile() === false) {
    throw new ProcessError("REQUEST_FAILED", `cannot write ${path}: it is there and is no file`);
  }
  const unfinished = `${path}.part`;
  const sink = createWriteStream(unfinished, { mode: 0o600 });
  const packed = path.endsWith(".gz") ? createGzip() : undefined;
  packed?.pipe(sink);
  const stream = packed ?? sink;
  const failed = new Promise<never>((_, reject) => {
    sink.once("error", (cause) => reject(new ProcessError("REQUEST_FAILED", `cannot write ${unfinished}`, { cause })));
  });
  failed.catch(() => undefined);
  return {
    write: async (line: RecordingLine): Promise<void> => {
      const isTaken = stream.write(`${formatRecordingLine(line)}\n`);
      await Promise.race([failed, isTaken ? undefined : once(stream, "drain")]);
    },
    keep: async (): Promise<void> => {
      stream.end();
      await Promise.race([failed, finished(sink)]);
      renameSync(unfinished, path);
    },
    discard: (): void => {
      sink.destroy();
      rmSync(unfinished, { force: true });
    },
  };
}
