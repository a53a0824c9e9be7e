import type { DescService } from "@bufbuild/protobuf";
import { Code, ConnectError, type ConnectRouter, type ServiceImpl } from "@connectrpc/connect";
import { Sets as GlobalSets } from "@kpng/model/gen/globalv1/api_pb.ts";
import {
  Health as HealthService,
  HealthCheckResponse_ServingStatus as Status,
} from "@kpng/model/gen/grpc/health/v1/health_pb.ts";
import { PositionService } from "@kpng/model/gen/kpng/position/v1/position_pb.ts";
import { Sets as LocalSets } from "@kpng/model/gen/localv1/api_pb.ts";
import type { Health } from "@kpng/process/health/health.ts";
import { Wakeup } from "@kpng/process/wait.ts";
import { checkAnyRight } from "../../identity/rights.ts";
import type { Store } from "../../store/store.ts";
import type { WatchContext } from "../session/requests.ts";
import { leaveKey, rightsKey } from "./connect-handler.ts";
import { addReflection } from "./reflection-service.ts";

/** Returns a function that registers the services other than Watch. `stop` ends the calls that observe health. */
export function makeRoutes(options: RoutesOptions, stop: AbortSignal): (router: ConnectRouter) => void {
  const { hasLocalApi = true, hasGlobalApi = true, moreServices = [] } = options;
  // The health and reflection services also list the Sets services, but those are served by `makeGrpcWatch`.
  const apis = [
    ...(hasLocalApi ? [LocalSets] : []),
    ...(hasGlobalApi ? [GlobalSets] : []),
    PositionService,
    ...moreServices.map(({ service }) => service),
  ];
  return (router) => {
    router.service(PositionService, positionService(options.subscribers.store));
    for (const { addTo } of moreServices) addTo(router);
    const names = apis.map((api) => api.typeName);
    router.service(HealthService, healthService(options.health, names, stop));
    addReflection(router, [...apis, HealthService], options.subscribers.scheduler);
  };
}

/** An additional gRPC service. Health and reflection include it. */
export interface MoreService {
  readonly service: DescService;
  readonly addTo: (router: ConnectRouter) => void;
}

/** The parts of the watcher that the services need, and options that select the services to register. */
export interface RoutesOptions extends WatchContext {
  readonly health: Health;
  /** True to serve localv1 (`--local-api`). Default true. */
  readonly hasLocalApi?: boolean | undefined;
  /** True to serve globalv1 (`--globalv1-api`). Default true. */
  readonly hasGlobalApi?: boolean | undefined;
  readonly moreServices?: readonly MoreService[] | undefined;
}

/** Implements grpc.health.v1. SERVING means that the process is ready, for "" and for each of `services`. */
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
      let sentStatus: Status | undefined;
      while (!idleSignal.aborted) {
        const status = statusOf(service) ?? Status.SERVICE_UNKNOWN;
        if (status === sentStatus) {
          await changed.wait(idleSignal);
        } else {
          sentStatus = status;
          // The status may change before this resumes.
          yield { status };
        }
      }
      if (leave.aborted) throw leave.reason;
    },
  };
}

/**
 * Implements kpng.position.v1.PositionService, which says whether this watcher is stale. It answers from memory, so
 * that no client can cause requests to the API server.
 */
function positionService({ currency }: Store): ServiceImpl<typeof PositionService> {
  return {
    check(_request, { values }) {
      checkAnyRight(values.get(rightsKey));
      return { isStale: currency.staleReason !== undefined };
    },
  };
}
