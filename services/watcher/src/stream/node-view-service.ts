import { create, fromBinary } from "@bufbuild/protobuf";
import { Code, ConnectError, type ServiceImpl } from "@connectrpc/connect";
import type { NodeViewService } from "@kpng/model/gen/kpng/view/v1/view_pb.ts";
import {
  GetNodeViewResponseSchema,
  ServiceEndpointsSchema,
  WatchNodeViewResponseSchema,
} from "@kpng/model/gen/kpng/view/v1/view_pb.ts";
import {
  type Endpoint,
  EndpointSchema,
  Feature,
  NodeSchema,
  type OpItem,
  type Service,
  ServiceSchema,
  Set as SetName,
  WatchReqSchema,
} from "@kpng/model/gen/localv1/api_pb.ts";
import { compareText } from "@kpng/model/text-order.ts";
import { resetFrame } from "./frames.ts";
import { leaveKey } from "./leave.ts";
import { localProjection } from "./local-projection.ts";
import { peerKey } from "./peer.ts";
import { readLocalRequest } from "./requests.ts";
import type { Batch } from "./subscription.ts";
import { syncMarker } from "./sync-marker.ts";
import { inTurns } from "./turns.ts";
import { opsIn, type WatchContext } from "./watch.ts";

/** kpng.view.v1.NodeViewService: a node's view for clients without bidirectional streams. */
export function nodeViewService(context: WatchContext): ServiceImpl<typeof NodeViewService> {
  const { store, proxyNames } = context;
  const read = (request: { nodeName: string; serviceProxyName: string }) =>
    readLocalRequest(
      create(WatchReqSchema, {
        NodeName: request.nodeName,
        ServiceProxyName: request.serviceProxyName,
        Features: [Feature.Extended, Feature.NodeItem],
      }),
      proxyNames,
    );
  return {
    async getNodeView(request, { signal }) {
      const local = read(request);
      const { snapshot } = store;
      if (!snapshot.isSynced) {
        throw new ConnectError(`waiting for the first list of ${store.missingKinds.join(", ")}`, Code.Unavailable);
      }
      const response = create(GetNodeViewResponseSchema, { revision: BigInt(snapshot.revision) });
      const services = new Map<string, { service: Service; endpoints: Map<string, Endpoint> }>();
      const changes = localProjection(local).whole(snapshot);
      for await (const { Op: op } of opsOf({ changes, rank: "begin" }, signal)) {
        if (op.case !== "Set") continue;
        const { Ref: ref, Bytes: bytes } = op.value;
        const path = ref?.Path ?? "";
        switch (ref?.Set) {
          case SetName.NodesSet:
            response.node = fromBinary(NodeSchema, bytes);
            break;
          case SetName.ServicesSet:
            services.set(path, { service: fromBinary(ServiceSchema, bytes), endpoints: new Map() });
            break;
          default:
            services.get(path.slice(0, path.lastIndexOf("/")))?.endpoints.set(path, fromBinary(EndpointSchema, bytes));
        }
      }
      const items = ascending(services).map(({ service, endpoints }) =>
        create(ServiceEndpointsSchema, { service, endpoints: ascending(endpoints) }),
      );
      return { ...response, items };
    },
    async *watchNodeView(request, { signal, values }) {
      const local = read(request);
      const projection = localProjection(local);
      const leave = values.get(leaveKey);
      const idleSignal = AbortSignal.any([signal, leave]);
      const place = context.admission?.enter("whole");
      const subscriber = context.subscribers.add("local", values.get(peerKey), store);
      subscriber.nodeName = local.nodeName;
      subscriber.proxyName = local.proxyName;
      try {
        for (let isFirst = true; ; isFirst = false) {
          if (!isFirst) place?.done();
          const batch = await subscriber.subscription.next(projection, idleSignal);
          if (batch === undefined && !signal.aborted) throw leave.reason;
          if (batch === undefined) throw new ConnectError("the watcher stops, or the client is gone", Code.Unavailable);
          const ops = isFirst ? [...opsIn(resetFrame)] : [];
          for await (const op of opsOf(batch, signal)) ops.push(op);
          if (signal.aborted) continue;
          place?.wrote();
          const marker = syncMarker(batch, store, true, context.subscribers.open.size);
          ops.push(...opsIn(marker));
          const { snapshot, before, computedAtMs } = batch;
          const revisions = { after: before?.revision ?? 0, revision: snapshot.revision };
          subscriber.sent({ ...revisions, computedAtMs, byteCount: marker.length });
          yield create(WatchNodeViewResponseSchema, { ops });
        }
      } finally {
        place?.close();
        subscriber.close();
      }
    },
  };
}

/** All operations; fewer when `signal` aborts. */
async function* opsOf({ changes, rank }: Pick<Batch, "changes" | "rank">, signal: AbortSignal): AsyncIterable<OpItem> {
  for await (const piece of inTurns(changes.frames(), rank, signal)) yield* opsIn(piece);
}

function ascending<V>(map: ReadonlyMap<string, V>): V[] {
  return [...map].sort(([a], [b]) => compareText(a, b)).map(([, value]) => value);
}
