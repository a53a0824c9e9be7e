import { create, fromBinary } from "@bufbuild/protobuf";
import { Code, ConnectError, type ServiceImpl } from "@connectrpc/connect";
import { compareText } from "@kpng/model/collections.ts";
import {
  type GetNodeViewResponse,
  GetNodeViewResponseSchema,
  type NodeViewService,
  type ServiceEndpoints,
  ServiceEndpointsSchema,
} from "@kpng/model/gen/kpng/view/v1/view_pb.ts";
import {
  EndpointSchema,
  Feature,
  NodeSchema,
  ServiceSchema,
  Set as SetName,
  type Value,
  type WatchReq,
  WatchReqSchema,
} from "@kpng/model/gen/localv1/api_pb.ts";
import { checkNodeRight } from "../../identity/rights.ts";
import { opsIn } from "../../items/frames.ts";
import { nodeProjection } from "../delta/node-projection.ts";
import { readLocalRequest, syncedSnapshot, type WatchContext } from "../session/requests.ts";
import { leaveKey, rightsKey } from "./connect-handler.ts";

/**
 * Implements kpng.view.v1.NodeViewService: a node's current view in one answer, for curl and scripts.
 */
export function nodeViewService(context: WatchContext): ServiceImpl<typeof NodeViewService> {
  const { store, proxyNames, subscribers } = context;
  return {
    async getNodeView(request, { signal, values }) {
      values.get(leaveKey).throwIfAborted();
      if (request.nodeName === "") throw new ConnectError("node_name must not be empty", Code.InvalidArgument);
      checkNodeRight(values.get(rightsKey), request.nodeName);
      const local = readLocalRequest(toWatchReq(request), proxyNames);
      const snapshot = syncedSnapshot(store);
      const view = create(GetNodeViewResponseSchema, { revision: BigInt(snapshot.revision) });
      const services = new Map<string, ServiceEndpoints>();
      let count = 0;
      const batches = nodeProjection(local).whole(snapshot).frames()[Symbol.iterator]();
      // In short steps, so that it does not delay nodes.
      for (let isEnd = false; !isEnd && !signal.aborted; ) {
        isEnd = await subscribers.scheduler.run("query", () => {
          const { done, value: frames } = batches.next();
          if (done === true) return true;
          for (const { Op: op } of opsIn(frames)) {
            if (op.case !== "Set") continue;
            count += 1;
            if (count > maxObjects) throw new ConnectError(tooLarge, Code.ResourceExhausted);
            put(view, services, op.value);
          }
          return false;
        });
      }
      signal.throwIfAborted();
      view.items = [...services].sort(([a], [b]) => compareText(a, b)).map(([, item]) => item);
      return view;
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

/** Maximum number of objects in an answer of GetNodeView, which the library encodes in one piece: 50 ms. */
const maxObjects = 5_000;

const tooLarge = `the view has more than ${maxObjects} objects, too many for one answer: call localv1.Sets/Watch`;

/** Adds an item. Services precede their endpoints. */
function put(view: GetNodeViewResponse, services: Map<string, ServiceEndpoints>, { Ref, Bytes }: Value): void {
  const { Set: set, Path: path = "" } = Ref ?? {};
  if (set === SetName.NodesSet) view.node = fromBinary(NodeSchema, Bytes);
  else if (set === SetName.ServicesSet) {
    services.set(path, create(ServiceEndpointsSchema, { service: fromBinary(ServiceSchema, Bytes) }));
  } else services.get(path.slice(0, path.lastIndexOf("/")))?.endpoints.push(fromBinary(EndpointSchema, Bytes));
}
