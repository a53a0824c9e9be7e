import type { ConnectRouter, ServiceImpl } from "@connectrpc/connect";
import {
  Health as HealthService,
  HealthCheckResponse_ServingStatus as Status,
} from "@kpng/model/gen/grpc/health/v1/health_pb.ts";
import { PositionService } from "@kpng/model/gen/kpng/position/v1/position_pb.ts";
import type { Health } from "@kpng/process/health/health.ts";
import { checkAnyRight } from "../../identity/rights.ts";
import type { Store } from "../../store/store.ts";
import type { WatchContext } from "../session/requests.ts";
import { rightsKey } from "./connect-handler.ts";

/** Returns a function that registers the services other than Watch. */
export function makeRoutes({ subscribers, health, inspect }: RoutesOptions): AddService {
  return (router) => {
    router.service(PositionService, positionService(subscribers.store));
    router.service(HealthService, healthService(health));
    inspect?.(router);
  };
}

/** Registers a service. */
export type AddService = (router: ConnectRouter) => void;

/** Parts of the watcher that the services need, and which services are registered. */
export interface RoutesOptions extends WatchContext {
  readonly health: Health;
  /** Serve localv1 (`--local-api`). Default true. */
  readonly hasLocalApi?: boolean | undefined;
  /** Serve globalv1 (`--globalv1-api`). Default true. */
  readonly hasGlobalApi?: boolean | undefined;
  /** Adds the inspection API (`inspection`). Default none. */
  readonly inspect?: AddService | undefined;
}

/** Implements grpc.health.v1, for probes: SERVING means that the process is ready, whatever service is asked for. */
function healthService(health: Health): Partial<ServiceImpl<typeof HealthService>> {
  return { check: () => ({ status: health.isReady ? Status.SERVING : Status.NOT_SERVING }) };
}

/** Implements kpng.position.v1.PositionService, from memory: no client causes requests to the API server. */
function positionService({ currency }: Store): ServiceImpl<typeof PositionService> {
  return {
    check(_request, { values }) {
      checkAnyRight(values.get(rightsKey));
      return { isStale: currency.staleReason !== undefined };
    },
  };
}
