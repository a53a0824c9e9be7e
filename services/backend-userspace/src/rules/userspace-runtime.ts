import type { ServiceKey } from "@kpng/model/service.ts";
import type { Log } from "@kpng/process/log.ts";
import type { Registry } from "prom-client";
import type { UdpContext, UdpListener } from "../listen/udp-listener.ts";
import type { Connection, RelayContext } from "../relay/connection.ts";
import { ReadBuffer } from "../relay/read-buffer.ts";
import { type SweepLimits, sweep, sweepIntervalMs } from "../relay/sweeper.ts";
import { AccessLog } from "../traffic/access-log.ts";
import { TrafficTable } from "../traffic/service-traffic.ts";
import { limitsFor, readOpenFilesLimit, TrafficLimit } from "../traffic/traffic-limits.ts";
import { registerTrafficMetrics } from "../traffic/traffic-metrics.ts";
import type { ServiceSettings } from "./service-settings.ts";

/** Settings of the traffic, from the options of the backend. Times in milliseconds. */
export interface TrafficSettings extends ServiceSettings {
  readonly connectTimeoutMs: number;
  readonly connectAttempts: number;
  readonly tcp: SweepLimits;
  /** Time without a datagram after which a UDP flow ends, once its endpoint has answered. */
  readonly udpIdleMs: number;
  /** The same before the first answer. */
  readonly udpUnansweredMs: number;
  /** Maximum numbers; 0 for those that suit the limit of open files. */
  readonly maxConnections: number;
  readonly maxFlows: number;
  readonly maxPerService: number;
  readonly maxAffinityClients: number;
  /** File of the access log, "-" for standard output; undefined for none. */
  readonly accessLog: string | undefined;
}

/** The part of a rule set that counters need. */
export interface ListenerCounts {
  /** Whether a Service has ports in the family. */
  readonly serves: (service: ServiceKey) => boolean;
  readonly socketCount: number;
  readonly closedCount: number;
}

/**
 * State that all listeners and connections of the process share, for both families: limits, counters, time limits.
 * `backend.ts` makes one; the last rule set that closes ends it.
 */
export class UserspaceRuntime {
  readonly settings: TrafficSettings;
  readonly table = new TrafficTable();
  readonly relay: RelayContext;
  readonly udp: UdpContext;
  readonly log: Log;
  readonly #connections = new Set<Connection>();
  readonly #udpListeners = new Set<UdpListener>();
  readonly #counts: ListenerCounts[] = [];
  #timer: NodeJS.Timeout | undefined;

  constructor(settings: TrafficSettings, log: Log, metrics: Registry) {
    const { maxConnections, maxFlows, maxPerService, connectTimeoutMs, connectAttempts } = settings;
    const given = { connections: maxConnections, flows: maxFlows, perService: maxPerService };
    const limits = limitsFor(readOpenFilesLimit(), given);
    const accessLog =
      settings.accessLog === undefined
        ? undefined
        : new AccessLog(settings.accessLog, (error) => log.error("access log not written", { reason: error.message }));
    const connections = new TrafficLimit(limits.connections);
    const flows = new TrafficLimit(limits.flows);
    this.settings = settings;
    this.log = log;
    this.relay = {
      limit: connections,
      open: this.#connections,
      buffer: new ReadBuffer(),
      connectTimeoutMs,
      connectAttempts,
      accessLog,
    };
    this.udp = { limit: flows, listeners: this.#udpListeners, accessLog };
    const sum = (read: (counts: ListenerCounts) => number): number =>
      this.#counts.reduce((total, counts) => total + read(counts), 0);
    registerTrafficMetrics(metrics, {
      ...{ table: this.table, connections, flows },
      closedFrontends: () => sum(({ closedCount }) => closedCount),
      openSockets: () => sum(({ socketCount }) => socketCount),
    });
  }

  /** Adds the listeners of a family, for metrics; the first call begins to enforce time limits. */
  add(counts: ListenerCounts): void {
    this.#counts.push(counts);
    const { tcp, udpIdleMs, udpUnansweredMs } = this.settings;
    const udp = { idleMs: Math.min(udpIdleMs, udpUnansweredMs), halfClosedMs: 0, drainMs: 0 };
    const intervalMs = Math.min(sweepIntervalMs(tcp), sweepIntervalMs(udp));
    const sweeps = (limitMs: number): number => Math.max(1, Math.ceil(limitMs / intervalMs));
    const flows = { answered: sweeps(udpIdleMs), unanswered: sweeps(udpUnansweredMs) };
    this.#timer ??= setInterval(() => {
      sweep(this.#connections, tcp, intervalMs, performance.now());
      for (const listener of this.#udpListeners) listener.sweep(flows);
    }, intervalMs).unref();
  }

  /** Forgets the counters of Services that no family serves any more. */
  prune(): void {
    this.table.prune((service) => this.#counts.some(({ serves }) => serves(service)));
  }

  /** Takes the listeners of a family out. With the last, resets all connections: an end of data would be a lie. */
  remove(counts: ListenerCounts): void {
    this.#counts.splice(this.#counts.indexOf(counts), 1);
    if (this.#counts.length > 0) return;
    clearInterval(this.#timer);
    for (const connection of this.#connections) connection.reset("stopped");
    for (const listener of this.#udpListeners) void listener.close("stopped");
  }
}
