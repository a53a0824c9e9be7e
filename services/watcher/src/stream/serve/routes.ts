import type { DescService } from "@bufbuild/protobuf";
import type { ConnectRouter, HandlerContext } from "@connectrpc/connect";
import { Sets as GlobalSets } from "@kpng/model/gen/globalv1/api_pb.ts";
import { Health as HealthService } from "@kpng/model/gen/grpc/health/v1/health_pb.ts";
import { PositionService } from "@kpng/model/gen/kpng/position/v1/position_pb.ts";
import { NodeViewService } from "@kpng/model/gen/kpng/view/v1/view_pb.ts";
import { Sets as LocalSets } from "@kpng/model/gen/localv1/api_pb.ts";
import type { Health } from "@kpng/process/health/health.ts";
import { type OpenWatch, openGlobalWatch, openLocalWatch, type WatchContext } from "../session/open-watch.ts";
import { healthService } from "./health-service.ts";
import { leaveKey } from "./leave.ts";
import { nodeViewService } from "./node-view-service.ts";
import { clientOf } from "./peer.ts";
import { positionService } from "./position-service.ts";
import { addReflection } from "./reflection-service.ts";
import { watchOps } from "./watch-ops.ts";

/**
 * Returns a function that registers the gRPC services of a watcher: node views, the cluster state, additional services,
 * health and reflection. Watches of health end when `stop` aborts.
 *
 * `makeCallHandler` calls it for the server, and `localTransport` for callers in the same process. Separate, because it
 * only lists the services; each has a file of its own.
 */
export function makeRoutes(options: RoutesOptions, stop: AbortSignal): (router: ConnectRouter) => void {
  const { hasLocalApi = true, hasGlobalApi = true, moreServices = [] } = options;
  const apis = [
    ...(hasLocalApi ? [LocalSets, NodeViewService] : []),
    ...(hasGlobalApi ? [GlobalSets] : []),
    PositionService,
    ...moreServices.map(({ service }) => service),
  ];
  const watchWith =
    <R>(open: OpenWatch<R>) =>
    (requests: AsyncIterable<R>, context: HandlerContext) =>
      watchOps(open, options, {
        requests,
        client: clientOf(context),
        signal: context.signal,
        leave: context.values.get(leaveKey),
      });
  return (router) => {
    if (hasLocalApi) {
      router.service(LocalSets, { watch: watchWith(openLocalWatch) });
      router.service(NodeViewService, nodeViewService(options));
    }
    router.service(PositionService, positionService(options.store));
    if (hasGlobalApi) {
      router.service(GlobalSets, { watch: watchWith(openGlobalWatch) });
    }
    for (const { addTo } of moreServices) addTo(router);
    const names = apis.map((api) => api.typeName);
    router.service(HealthService, healthService(options.health, names, stop));
    addReflection(router, [...apis, HealthService]);
  };
}

/** An additional gRPC service. Health and reflection include it. */
export interface MoreService {
  readonly service: DescService;
  readonly addTo: (router: ConnectRouter) => void;
}

/** Parts of the watcher that the services need, and which services are registered. */
export interface RoutesOptions extends WatchContext {
  readonly health: Health;
  /** Serve localv1 and kpng.view.v1 (`--local-api`). Default true. */
  readonly hasLocalApi?: boolean | undefined;
  /** Serve globalv1 (`--globalv1-api`). Default true. */
  readonly hasGlobalApi?: boolean | undefined;
  readonly moreServices?: readonly MoreService[] | undefined;
}
