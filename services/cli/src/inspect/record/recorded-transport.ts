import { create, fromJson } from "@bufbuild/protobuf";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import type { Transport } from "@connectrpc/connect";
import { type Node, NodeSchema } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import type {
  GetStatusResponse,
  ListNodesRequest,
  ListNodesResponse,
  ListSubscribersResponse,
} from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import {
  ApplyState,
  type Subscriber,
  SubscriberKind,
  SubscriberSchema,
} from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { timestampOf } from "@kpng/model/wire/time-message.ts";
import { readRecording } from "@kpng/watcher/source/replay/recording.ts";
import { timestampMs } from "../print/format.ts";

/**
 * Returns a transport to a watcher that replays the recording at `path`. It adds to the answers of `transport` which
 * streams the recorded watcher had at the end of the recording, and what they had applied. The replaying watcher itself
 * has no streams, so every node would be absent.
 *
 * `makeInspectSource` calls it for `kpng replay`. Separate, because no other source has such streams.
 *
 * Revisions are those of the recorded watcher. Times are moved, so that ages are those at the end of the recording.
 */
export function recordedTransport(transport: Transport, path: string): Transport {
  let read: readonly Subscriber[] | undefined;
  const subscribers = (): readonly Subscriber[] => {
    read ??= readSubscribers(path);
    return read;
  };
  return {
    stream: (...call) => transport.stream(...call),
    unary: async (method, signal, timeoutMs, header, input, values) => {
      if (method.name === "ListNodes") {
        const request = input as Partial<ListNodesRequest>;
        const all = { ...input, states: [], notAppliedRevision: 0n };
        const response = await transport.unary(method, signal, timeoutMs, header, all, values);
        const message = response.message as unknown as ListNodesResponse;
        message.nodes = withStreams(message, subscribers(), request).filter((node) => matches(node, request));
        return response;
      }
      const response = await transport.unary(method, signal, timeoutMs, header, input, values);
      if (method.name === "GetStatus") {
        const status = response.message as unknown as GetStatusResponse;
        for (const { sentRevision } of subscribers())
          if (sentRevision > status.revision) status.revision = sentRevision;
      }
      if (method.name === "ListSubscribers") {
        (response.message as unknown as ListSubscribersResponse).subscribers = [...subscribers()];
      }
      return response;
    },
  };
}

function readSubscribers(path: string): readonly Subscriber[] {
  const lines = readRecording(path);
  const last = lines.findLast((line) => line.kind === "rows" && line.of === "subscribers");
  const head = lines[0];
  if (last?.kind !== "rows" || head?.kind !== "head") return [];
  const shiftMs = Date.now() - (Date.parse(head.beganAt) + last.atMs);
  const moved = (time: Timestamp | undefined) => (time === undefined ? {} : timestampOf(timestampMs(time) + shiftMs));
  return last.rows.map((row) => {
    const subscriber = fromJson(SubscriberSchema, row);
    const { unappliedSince, openedAt } = subscriber;
    if (unappliedSince !== undefined) Object.assign(unappliedSince, moved(unappliedSince));
    if (openedAt !== undefined) Object.assign(openedAt, moved(openedAt));
    return subscriber;
  });
}

function withStreams(
  { nodes, nextPageToken }: ListNodesResponse,
  subscribers: readonly Subscriber[],
  { name = "", pageToken = "" }: Partial<ListNodesRequest>,
): Node[] {
  const byNode = Map.groupBy(subscribers, ({ node }) => node);
  const known = nodes.map((node) => withStreamsOf(node, byNode.get(node.name) ?? []));
  if (name !== "" || pageToken !== "" || nextPageToken !== "") return known;
  // Streams for nodes that the cluster does not have; with several pages, they are left out.
  const names = new Set(nodes.map((node) => node.name));
  const strays = [...byNode].filter(([node, of]) => node !== "" && !names.has(node) && of.some(isNode));
  return [...known, ...strays.map(([node, of]) => withStreamsOf(create(NodeSchema, { name: node }), of))];
}

function withStreamsOf(node: Node, all: readonly Subscriber[]): Node {
  const streams = all.filter(isNode);
  const applied = streams.map((one) => (one.hasAcknowledged ? one.appliedRevision : one.receivedRevision));
  const waiting = streams.flatMap(({ unappliedSince }) => unappliedSince ?? []);
  const oldest = waiting.toSorted((one, other) => timestampMs(one) - timestampMs(other))[0];
  if (!node.isKnown) node.state = ApplyState.UNKNOWN;
  else if (streams.length > 0)
    node.state = streams.map(({ state }) => state).toSorted((one, other) => other - one)[0] ?? ApplyState.ABSENT;
  node.subscriberCount = streams.length;
  node.observerCount = all.length - streams.length;
  node.appliedRevision = applied.toSorted((one, other) => Number(one - other))[0] ?? 0n;
  if (oldest !== undefined) node.unappliedSince = oldest;
  node.programs = [...new Set(streams.map(({ program }) => program))].filter((one) => one !== "").sort();
  node.error = streams.find(({ error }) => error !== "")?.error ?? "";
  return node;
}

function isNode({ kind }: Subscriber): boolean {
  return kind === SubscriberKind.NODE;
}

function matches(
  { state, appliedRevision }: Node,
  { states = [], notAppliedRevision = 0n }: Partial<ListNodesRequest>,
) {
  return (
    (states.length === 0 || states.includes(state)) &&
    (notAppliedRevision === 0n || appliedRevision < notAppliedRevision)
  );
}
