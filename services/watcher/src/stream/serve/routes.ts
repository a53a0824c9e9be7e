import type { DescService } from "@bufbuild/protobuf";
import {
  Code,
  ConnectError,
  type ConnectRouter,
  createConnectRouter,
  createContextValues,
  type HandlerContext,
  type ServiceImpl,
  type Transport,
} from "@connectrpc/connect";
import { createUniversalHandlerClient, type UniversalHandler } from "@connectrpc/connect/protocol";
import { createTransport } from "@connectrpc/connect/protocol-connect";
import { Sets as GlobalSets } from "@kpng/model/gen/globalv1/api_pb.ts";
import {
  Health as HealthService,
  HealthCheckResponse_ServingStatus as Status,
} from "@kpng/model/gen/grpc/health/v1/health_pb.ts";
import { PositionService } from "@kpng/model/gen/kpng/position/v1/position_pb.ts";
import { NodeViewService } from "@kpng/model/gen/kpng/view/v1/view_pb.ts";
import { Sets as LocalSets } from "@kpng/model/gen/localv1/api_pb.ts";
import type { Health } from "@kpng/process/health/health.ts";
import { Wakeup } from "@kpng/process/wait.ts";
import { checkAnyRight, everyRight } from "../../identity/rights.ts";
import type { Store } from "../../store/store.ts";
import { type OpenWatch, openGlobalWatch, openLocalWatch, type WatchContext } from "../session/requests.ts";
import { clientOf, leaveKey, rightsKey } from "./connect-handler.ts";
import { nodeViewService } from "./node-view.ts";
import { addReflection } from "./reflection-service.ts";
import { watchOps } from "./watch-ops.ts";

/**
 * Returns a function that registers the gRPC services of a watcher: node views, the cluster state, additional services,
 * health and reflection. `stop` ends what they observe.
 *
 * A server answers Watch itself, with `makeGrpcWatch`; the router does for clients in this process.
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

/**
 * Implements grpc.health.v1, for probes and load balancers. SERVING means that the process is ready, for "" and for
 * each of `services`.
 */
function healthService(
  health: Health,
  services: readonly string[],
  stop: AbortSignal,
): ServiceImpl<typeof HealthService> {
  const changed = new Wakeup();
  health.onChange(() => changed.wake(), stop);
  const statusOf = (service: string): Status | undefined => {
    if (service !== "" && !services.includes(service)) return undefined;
    return health.isReady ? Status.SERVING : Status.NOT_SERVING;
  };
  return {
    check({ service }) {
      const status = statusOf(service);
      if (status === undefined) throw new ConnectError(`service "${service}" not found`, Code.NotFound);
      return { status };
    },
    list() {
      const status = health.isReady ? Status.SERVING : Status.NOT_SERVING;
      return { statuses: Object.fromEntries(["", ...services].map((service) => [service, { status }])) };
    },
    async *watch({ service }, { signal, values }) {
      const leave = values.get(leaveKey);
      const idleSignal = AbortSignal.any([signal, leave]);
      let told: Status | undefined;
      while (!idleSignal.aborted) {
        const status = statusOf(service) ?? Status.SERVICE_UNKNOWN;
        if (status !== told) yield { status };
        told = status;
        await changed.wait(idleSignal);
      }
      if (leave.aborted) throw leave.reason;
    },
  };
}

/**
 * Implements kpng.position.v1.PositionService: tells nodes and relays whether the state of this watcher is known to be
 * current. It answers from memory, so that no client causes requests to the API server.
 */
function positionService({ currency }: Store): ServiceImpl<typeof PositionService> {
  return {
    check(_request, { values }) {
      checkAnyRight(values.get(rightsKey));
      return { isStale: currency.staleReason !== undefined };
    },
  };
}

/**
 * Returns a transport to the services of a watcher in the same process. Its calls have every right; those of
 * createRouterTransport of the Connect library come from no connection and would have none.
 */
export function localTransport(options: RoutesOptions, stop: AbortSignal): Transport {
  const router = createConnectRouter({ connect: true });
  makeRoutes(options, stop)(router);
  return createTransport({
    httpClient: createUniversalHandlerClient(router.handlers.map(trusted)),
    baseUrl: "https://in-memory",
    useBinaryFormat: true,
    interceptors: [],
    acceptCompression: [],
    sendCompression: null,
    compressMinBytes: Number.MAX_SAFE_INTEGER,
    readMaxBytes: Number.MAX_SAFE_INTEGER,
    writeMaxBytes: Number.MAX_SAFE_INTEGER,
  });
}

/** Gives the calls of a handler every right. */
function trusted(handler: UniversalHandler): UniversalHandler {
  const { requestPath, allowedMethods, protocolNames, supportedContentType, method, service } = handler;
  const handle: UniversalHandlerFn = (request) =>
    handler({ ...request, contextValues: createContextValues().set(rightsKey, everyRight("this process")) });
  return Object.assign(handle, { requestPath, allowedMethods, protocolNames, supportedContentType, method, service });
}

type UniversalHandlerFn = (...call: Parameters<UniversalHandler>) => ReturnType<UniversalHandler>;
