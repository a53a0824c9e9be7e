import { addressAndPort } from "@kpng/model/address.ts";
import type { Protocol, ServiceKey } from "@kpng/model/service.ts";
import type { Log } from "@kpng/process/log.ts";
import { machineMemoryBytes } from "@kpng/process/run/memory.ts";
import type { EndpointAddress } from "@kpng/service-plan/service-plan.ts";
import type { Registry } from "prom-client";
import type { BalancedEndpoint } from "../balance/balancer.ts";
import type { FlowLimits, UdpContext } from "../listen/udp-listener.ts";
import { type ConnectionLimits, ReadGarbage, RelayBuffers, type RelayContext } from "../relay/connection.ts";
import {
  limitsFor,
  readOpenFilesLimit,
  registerTrafficMetrics,
  TrafficLimit,
  TrafficTable,
} from "../traffic/service-traffic.ts";

/** Traffic settings from the backend's options. */
export interface TrafficSettings {
  readonly tcp: ConnectionLimits;
  readonly udp: FlowLimits;
  /** Time between two checks of the time limits, in milliseconds. */
  readonly sweepMs: number;
  /** Maximum number of open TCP connections; 0 for the default of `limitsFor`. */
  readonly maxConnections: number;
  /**
   * Maximum number of frontends of a Service that get a listener in one family. It is limited because other Services
   * need local ports, too.
   */
  readonly maxListenersPerService: number;
}

interface ListenersOfFamily {
  /** Returns whether a Service has ports in the family. */
  readonly serves: (service: ServiceKey) => boolean;
  /** See `UserspaceRuleSet.captures`. */
  readonly captures: (protocol: Protocol, to: EndpointAddress) => boolean;
  /** Number of frontends that could not be opened. */
  readonly closedCount: number;
}

/**
 * State that all listeners and connections in this process share, for both families: limits, counters and time limits.
 * It ends when the last rule set is closed.
 */
export class UserspaceRuntime {
  readonly settings: TrafficSettings;
  readonly table = new TrafficTable();
  readonly relay: RelayContext;
  readonly udp: UdpContext;
  readonly log: Log;
  /** Places with an open listener, by {@link placeKey}. */
  readonly listening = new Set<string>();
  readonly #families: ListenersOfFamily[] = [];
  readonly #openFiles = readOpenFilesLimit();
  #timer: NodeJS.Timeout | undefined;

  constructor(settings: TrafficSettings, log: Log, metrics: Registry) {
    this.settings = settings;
    const limits = this.#limits();
    const [connections, flows] = [new TrafficLimit(limits.connections), new TrafficLimit(limits.flows)];
    this.log = log;
    this.relay = { limit: connections, open: new Set(), buffers: new RelayBuffers(), garbage: new ReadGarbage() };
    this.udp = { limit: flows, listeners: new Set() };
    registerTrafficMetrics(metrics, {
      table: this.table,
      connections,
      flows,
      closedFrontends: () => this.#families.reduce((total, { closedCount }) => total + closedCount, 0),
    });
  }

  /** Adds the listeners of a family, for metrics. The first call also starts the enforcement of time limits. */
  add(family: ListenersOfFamily): void {
    this.#families.push(family);
    const { tcp, udp, sweepMs } = this.settings;
    this.#timer ??= setInterval(() => {
      const nowMs = performance.now();
      for (const connection of this.relay.open) connection.sweep(tcp, nowMs);
      for (const listener of this.udp.listeners) listener.sweep(udp, nowMs);
    }, sweepMs).unref();
  }

  isListening(protocol: Protocol, place: EndpointAddress): boolean {
    return this.listening.has(placeKey(protocol, place));
  }

  /** Adapts default limits to the number of descriptors that are not used by listeners. */
  updateLimits(): void {
    const { connections, flows } = this.#limits();
    this.relay.limit.limits = connections;
    this.udp.limit.limits = flows;
  }

  #limits(): ReturnType<typeof limitsFor> {
    const resources = { openFiles: this.#openFiles - this.listening.size, memoryBytes: machineMemoryBytes() };
    return limitsFor(resources, this.settings.maxConnections);
  }

  /**
   * Returns whether connections to an endpoint would come back to a listener of this process, and so be relayed in an
   * endless loop. Anyone who may write an EndpointSlice can cause this. It is logged once for each endpoint.
   */
  isLoop(service: string, protocol: Protocol, endpoint: BalancedEndpoint): boolean {
    const isLoop =
      this.isListening(protocol, endpoint) || this.#families.some(({ captures }) => captures(protocol, endpoint));
    if (isLoop && !endpoint.isLoop) {
      const reason = "it is an address and port at which this process serves a Service";
      this.log.error("endpoint left out", {
        service,
        endpoint: addressAndPort(endpoint.address, endpoint.port),
        reason,
      });
    }
    endpoint.isLoop = isLoop;
    return isLoop;
  }

  prune(): void {
    this.table.prune((service) => this.#families.some(({ serves }) => serves(service)));
  }

  /**
   * Removes the listeners of a family. After the last family, resets all connections, because a regular end would tell
   * clients that they have received all data.
   */
  remove(family: ListenersOfFamily): void {
    this.#families.splice(this.#families.indexOf(family), 1);
    if (this.#families.length > 0) return;
    clearInterval(this.#timer);
    for (const connection of this.relay.open) connection.reset("stopped");
    for (const listener of this.udp.listeners) void listener.close("stopped");
  }
}

/** Identifies a place with a listener. *Shape:* `TCP 192.0.2.1 20173`. */
export const placeKey = (protocol: Protocol, { address, port }: EndpointAddress): string =>
  `${protocol} ${address} ${port}`;
