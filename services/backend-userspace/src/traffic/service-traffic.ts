import type { ReadServiceCounts } from "@kpng/backend-kit/traffic/traffic-reporter.ts";
import type { ServiceKey } from "@kpng/model/service.ts";

/**
 * Why a connection or a UDP flow ended, or was not begun.
 *
 * - closed: both sides closed it; of a UDP flow: idle for its time limit.
 * - client-reset, endpoint-reset: one side reset it, and the other side was reset too.
 * - connect-failed: no endpoint accepted the connection within all attempts.
 * - loop: each endpoint is a frontend of this process, so a connection would come back without end.
 * - idle: no byte within `--tcp-idle-timeout`.
 * - drained: its endpoint was removed longer than `--drain-timeout` ago.
 * - limit: a limit of connections or flows was reached.
 * - source: the client is outside the source ranges.
 * - policy: the traffic policies give this client no endpoint on this node.
 * - stopped: this process ended.
 */
export type ConnectionEnd =
  | "closed"
  | "client-reset"
  | "endpoint-reset"
  | "connect-failed"
  | "loop"
  | "idle"
  | "drained"
  | "limit"
  | "source"
  | "policy"
  | "stopped";

/**
 * Counters of one Service. They are plain numbers, from which metrics are read when they are collected: to increment a
 * metric with labels takes a microsecond, for each chunk of data.
 *
 * Connections count TCP connections and UDP flows together; their protocol is known from the Service's port.
 */
export class ServiceTraffic {
  readonly service: ServiceKey;
  /** Connections and flows that are open now. */
  open = 0;
  /** Connections and flows that were given to an endpoint, or were refused. */
  total = 0;
  /** Attempts to connect that failed and were followed by another one. */
  retries = 0;
  bytesFromClients = 0;
  bytesToClients = 0;
  readonly ends = new Map<ConnectionEnd, number>();

  constructor(service: ServiceKey) {
    this.service = service;
  }

  end(end: ConnectionEnd): void {
    this.ends.set(end, (this.ends.get(end) ?? 0) + 1);
  }
}

/**
 * The counters of all Services, by key. A Service that has been deleted keeps its counters while it has connections.
 */
export class TrafficTable {
  readonly #byService = new Map<ServiceKey, ServiceTraffic>();

  /** The counters of the Services that have had a connection or a flow. */
  get used(): readonly ServiceTraffic[] {
    return [...this.#byService.values()].filter(({ total }) => total > 0);
  }

  /** Returns the counters of a Service, which begin at 0. */
  of(service: ServiceKey): ServiceTraffic {
    let traffic = this.#byService.get(service);
    if (traffic === undefined) {
      traffic = new ServiceTraffic(service);
      this.#byService.set(service, traffic);
    }
    return traffic;
  }

  /** Forgets the counters of Services for which `isServed` is false and that have no open connection. */
  prune(isServed: (service: ServiceKey) => boolean): void {
    for (const [service, { open }] of this.#byService) {
      if (open === 0 && !isServed(service)) this.#byService.delete(service);
    }
  }
}

/**
 * Returns the counters of all Services in the form in which the kit reports them to the watcher. Packets
 * are 0, because this process relays bytes and sees no packets.
 */
export function serviceCountsOf(table: TrafficTable): ReturnType<ReadServiceCounts> {
  return table.used.map(({ service, total, bytesFromClients, bytesToClients }) => [
    service,
    { connections: total, packetsFromClients: 0, bytesFromClients, packetsToClients: 0, bytesToClients },
  ]);
}
