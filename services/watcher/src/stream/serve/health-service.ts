import { Code, ConnectError, type ServiceImpl } from "@connectrpc/connect";
import {
  type Health as HealthService,
  HealthCheckResponse_ServingStatus as Status,
} from "@kpng/model/gen/grpc/health/v1/health_pb.ts";
import type { Health } from "@kpng/process/health/health.ts";
import { Wakeup } from "@kpng/process/wait.ts";
import { leaveKey } from "./leave.ts";

/**
 * Implements grpc.health.v1, for probes and load balancers. SERVING means that the process is ready, for "" and for
 * each of `services`. Watches end when `stop` aborts.
 *
 * `makeRoutes` registers it; each service has a file of its own. The status server of the process answers probes over
 * plain HTTP.
 */
export function healthService(
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
