import { create, fromBinary } from "@bufbuild/protobuf";
import { Code, ConnectError, type ServiceImpl } from "@connectrpc/connect";
import type { NodeViewService } from "@kpng/model/gen/kpng/view/v1/view_pb.ts";
import { GetNodeViewResponseSchema, WatchNodeViewResponseSchema } from "@kpng/model/gen/kpng/view/v1/view_pb.ts";
import {
  type Endpoint,
  EndpointSchema,
  Feature,
  NodeSchema,
  type Service,
  ServiceSchema,
  Set as SetName,
  WatchReqSchema,
} from "@kpng/model/gen/localv1/api_pb.ts";
import { compareText } from "@kpng/model/text-order.ts";
import { localItems, localProjection } from "./local-projection.ts";
import { changeOp, resetOp, syncOp } from "./ops.ts";
import { readLocalRequest } from "./requests.ts";
import { Subscription } from "./subscription.ts";
import type { WatchContext } from "./watch.ts";

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
    getNodeView(request) {
      const local = read(request);
      const { snapshot } = store;
      if (!snapshot.isSynced) {
        throw new ConnectError(`waiting for the first list of ${store.missingKinds.join(", ")}`, Code.Unavailable);
      }
      const response = create(GetNodeViewResponseSchema, { revision: BigInt(snapshot.revision) });
      const services = new Map<string, { service: Service; endpoints: Endpoint[] }>();
      for (const item of localItems(snapshot, local)) {
        switch (localProjection(local).sections[item.section]) {
          case SetName.NodesSet:
            response.node = fromBinary(NodeSchema, item.bytes);
            break;
          case SetName.ServicesSet:
            services.set(item.path, { service: fromBinary(ServiceSchema, item.bytes), endpoints: [] });
            break;
          default:
            services
              .get(item.path.slice(0, item.path.lastIndexOf("/")))
              ?.endpoints.push(fromBinary(EndpointSchema, item.bytes));
        }
      }
      const ascending = [...services].sort(([a], [b]) => compareText(a, b));
      return {
        ...response,
        items: ascending.map(([, item]) => ({ $typeName: "kpng.view.v1.ServiceEndpoints", ...item })),
      };
    },
    async *watchNodeView(request, { signal }) {
      const projection = localProjection(read(request));
      const subscription = new Subscription(store);
      for (let isFirst = true; ; isFirst = false) {
        const batch = await subscription.next(projection, signal);
        if (batch === undefined) throw new ConnectError("the watcher stops, or the client is gone", Code.Unavailable);
        const changes = batch.changes.map((change) => changeOp(change, projection));
        const ops = [...(isFirst ? [resetOp] : []), ...changes, syncOp(batch, store.instance, true)];
        yield create(WatchNodeViewResponseSchema, { ops });
      }
    },
  };
}
