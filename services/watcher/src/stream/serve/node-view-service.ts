import { create, fromBinary } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
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
  type WatchReq,
  WatchReqSchema,
} from "@kpng/model/gen/localv1/api_pb.ts";
import { compareText } from "@kpng/model/text-order.ts";
import { Wakeup } from "@kpng/process/wait.ts";
import { checkNodeRight } from "../../identity/rights.ts";
import { nodeProjection } from "../delta/node-projection.ts";
import type { Changes } from "../delta/projection.ts";
import { openLocalWatch, type WatchContext } from "../session/open-watch.ts";
import { readLocalRequest, syncedSnapshot } from "../session/requests.ts";
import { scheduledItems } from "../session/scheduler.ts";
import { leaveKey } from "./leave.ts";
import { clientOf, rightsKey } from "./peer.ts";
import { opsIn, watchOps } from "./watch-ops.ts";

/**
 * Implements kpng.view.v1.NodeViewService: a node's view, for clients without bidirectional streams.
 *
 * `makeRoutes` registers it. Separate from `watchOps`, because its two methods ask for one node by name and answer with
 * its view; they read no stream of requests.
 */
export function nodeViewService(context: WatchContext): ServiceImpl<typeof NodeViewService> {
  const { store, proxyNames } = context;
  return {
    async getNodeView(request, { signal, values }) {
      values.get(leaveKey).throwIfAborted();
      checkNodeRight(values.get(rightsKey), request.nodeName);
      const local = readLocalRequest(toWatchReq(request), proxyNames);
      const snapshot = syncedSnapshot(store);
      const response = create(GetNodeViewResponseSchema, { revision: BigInt(snapshot.revision) });
      const services = new Map<string, { service: Service; endpoints: Map<string, Endpoint> }>();
      for await (const { Op: op } of opsOf(nodeProjection(local).whole(snapshot), signal)) {
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
    async *watchNodeView(request, call) {
      const { signal, values } = call;
      const message = toWatchReq(request);
      // Yields the next request only after the client has read a batch: the stream would take any number of requests.
      const wasRead = new Wakeup();
      let isDue = true;
      const requests = (async function* requestsAsRead() {
        while (!signal.aborted) {
          if (!isDue) {
            await wasRead.wait(signal);
            continue;
          }
          isDue = false;
          yield message;
        }
      })();
      let ops: OpItem[] = [];
      const watch = { requests, client: clientOf(call), signal, leave: values.get(leaveKey) };
      for await (const op of watchOps(openLocalWatch, context, watch)) {
        ops.push(op);
        if (op.Op.case !== "Sync") continue;
        yield create(WatchNodeViewResponseSchema, { ops });
        ops = [];
        isDue = true;
        wasRead.wake();
      }
    },
  };
}

function toWatchReq({ nodeName, serviceProxyName }: { nodeName: string; serviceProxyName: string }): WatchReq {
  return create(WatchReqSchema, {
    NodeName: nodeName,
    ServiceProxyName: serviceProxyName,
    Features: [Feature.Extended, Feature.NodeItem],
  });
}

/** Yields all operations; ends early when `signal` aborts. */
async function* opsOf(changes: Changes, signal: AbortSignal): AsyncIterable<OpItem> {
  for await (const piece of scheduledItems(changes.frames(), signal)) yield* opsIn(piece);
}

function ascending<V>(map: ReadonlyMap<string, V>): V[] {
  return [...map].sort(([a], [b]) => compareText(a, b)).map(([, value]) => value);
}
