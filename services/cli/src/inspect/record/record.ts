import { type DescMessage, type JsonValue, type MessageShape, toJson } from "@bufbuild/protobuf";
import { ChangeSchema } from "@kpng/model/gen/kpng/inspect/v1/change_pb.ts";
import { EndpointDecisionSchema } from "@kpng/model/gen/kpng/inspect/v1/explain_pb.ts";
import { GetStatusResponseSchema } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { SubscriberSchema } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { parseDurationMs, parseNodeName, parseSomeText } from "@kpng/process/options.ts";
import type { RecordingLine } from "@kpng/watcher/source/replay/recording.ts";
import packageJson from "../../../package.json" with { type: "json" };
import { inspectClient, pageSize, readPages, unknownNode } from "../query/inspect-client.ts";
import type { InspectCommand } from "../query/inspect-command.ts";
import { recordOps } from "./record-ops.ts";
import { openRecordingFile } from "./recording-file.ts";

export const recordCommand: InspectCommand = {
  name: "record",
  description: "write what a watcher holds, and what changes for a while, into a file that can be replayed",
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
    const file = openRecordingFile(path);
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
