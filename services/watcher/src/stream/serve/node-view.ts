import { setImmediate } from "node:timers/promises";
import { create, fromBinary } from "@bufbuild/protobuf";
import { Code, ConnectError, type ServiceImpl } from "@connectrpc/connect";
import { compareText } from "@kpng/model/collections.ts";
import {
  type GetNodeViewResponse,
  GetNodeViewResponseSchema,
  type NodeViewService,
  type ServiceEndpoints,
  ServiceEndpointsSchema,
  WatchNodeViewResponseSchema,
} from "@kpng/model/gen/kpng/view/v1/view_pb.ts";
import {
  EndpointSchema,
  Feature,
  NodeSchema,
  type OpItem,
  ServiceSchema,
  Set as SetName,
  type Value,
  type WatchReq,
  WatchReqSchema,
} from "@kpng/model/gen/localv1/api_pb.ts";
import { Wakeup } from "@kpng/process/wait.ts";
import { checkNodeRight } from "../../identity/rights.ts";
import { nodeProjection } from "../delta/node-projection.ts";
import { openLocalWatch, readLocalRequest, syncedSnapshot, type WatchContext } from "../session/requests.ts";
import { scheduledItems } from "../session/scheduler.ts";
import { clientOf, leaveKey, rightsKey } from "./connect-handler.ts";
import { opsIn, watchOps } from "./watch-ops.ts";

/**
 * Implements kpng.view.v1.NodeViewService: a node's view, for clients without bidirectional streams.
 */
export function nodeViewService(context: WatchContext): ServiceImpl<typeof NodeViewService> {
  const { store, proxyNames } = context;
  return {
    async getNodeView(request, { signal, values }) {
      values.get(leaveKey).throwIfAborted();
      checkNodeRight(values.get(rightsKey), request.nodeName);
      const local = readLocalRequest(toWatchReq(request), proxyNames);
      const snapshot = syncedSnapshot(store);
      const view = create(GetNodeViewResponseSchema, { revision: BigInt(snapshot.revision) });
      const services = new Map<string, ServiceEndpoints>();
      let count = 0;
      // In short steps, so that it does not delay nodes.
      for await (const frames of scheduledItems(nodeProjection(local).whole(snapshot).frames(), signal)) {
        for (const { Op: op } of opsIn(frames)) {
          if (op.case !== "Set") continue;
          count += 1;
          if (count > maxObjects) throw new ConnectError(tooLarge, Code.ResourceExhausted);
          put(view, services, op.value);
        }
      }
      signal.throwIfAborted();
      view.items = [...services].sort(([a], [b]) => compareText(a, b)).map(([, item]) => item);
      return view;
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
        const isBatchEnd = op.Op.case === "Sync";
        if (!isBatchEnd && ops.length < maxOpsPerMessage) continue;
        yield create(WatchNodeViewResponseSchema, { ops });
        ops = [];
        if (!isBatchEnd) {
          await setImmediate();
          continue;
        }
        isDue = true;
        wasRead.wake();
      }
    },
  };
}

/** Operations in one message of WatchNodeView: 2 to 5 ms to decode and encode. A larger batch is divided. */
const maxOpsPerMessage = 500;

function toWatchReq({ nodeName, serviceProxyName }: { nodeName: string; serviceProxyName: string }): WatchReq {
  return create(WatchReqSchema, {
    NodeName: nodeName,
    ServiceProxyName: serviceProxyName,
    Features: [Feature.Extended, Feature.NodeItem],
  });
}

/** Maximum number of objects in an answer of GetNodeView, which the library encodes in one piece: 50 ms. */
const maxObjects = 5_000;

const tooLarge = `the view has more than ${maxObjects} objects, too many for one answer: call WatchNodeView`;

/** Adds an item. Services precede their endpoints. */
function put(view: GetNodeViewResponse, services: Map<string, ServiceEndpoints>, { Ref, Bytes }: Value): void {
  const { Set: set, Path: path = "" } = Ref ?? {};
  if (set === SetName.NodesSet) view.node = fromBinary(NodeSchema, Bytes);
  else if (set === SetName.ServicesSet) {
    services.set(path, create(ServiceEndpointsSchema, { service: fromBinary(ServiceSchema, Bytes) }));
  } else services.get(path.slice(0, path.lastIndexOf("/")))?.endpoints.push(fromBinary(EndpointSchema, Bytes));
}
