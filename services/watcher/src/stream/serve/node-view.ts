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
  NodeSchema,
  ServiceSchema,
  Set as SetName,
  type Value,
} from "@kpng/model/gen/localv1/api_pb.ts";
import { checkNodeRight } from "../../identity/rights.ts";
import { opsIn } from "../../items/frames.ts";
import { nodeProjection } from "../delta/node-projection.ts";
import { readNodeName, readProxyName, syncedSnapshot, type WatchContext } from "../session/requests.ts";
import { leaveKey, rightsKey } from "./connect-handler.ts";

/** Implements kpng.view.v1.NodeViewService: a node's current view in one answer, for curl and scripts. */
export function nodeViewService(context: WatchContext): ServiceImpl<typeof NodeViewService> {
  const { proxyNames, subscribers } = context;
  return {
    async getNodeView(request, { signal, values }) {
      values.get(leaveKey).throwIfAborted();
      if (request.nodeName === "") throw new ConnectError("node_name must not be empty", Code.InvalidArgument);
      checkNodeRight(values.get(rightsKey), request.nodeName);
      const nodeName = readNodeName(request.nodeName);
      const proxyName = readProxyName(request.serviceProxyName, proxyNames);
      const snapshot = syncedSnapshot(subscribers.store);
      const view = create(GetNodeViewResponseSchema, { revision: BigInt(snapshot.revision) });
      const services = new Map<string, ServiceEndpoints>();
      let count = 0;
      const frames = nodeProjection({ nodeName, proxyName, isExtended: true, wantsNode: true })
        .whole(snapshot)
        .frames()
        [Symbol.iterator]();
      // The view is read in short steps, so that this call does not delay nodes.
      for (let isEnd = false; !isEnd && !signal.aborted; ) {
        isEnd = await subscribers.scheduler.run("query", () => {
          const { done, value: frame } = frames.next();
          if (done === true) return true;
          for (const { Op: op } of opsIn(frame)) {
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

/** Maximum number of objects in an answer. The library encodes the answer in one piece, which takes up to 50 ms. */
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
