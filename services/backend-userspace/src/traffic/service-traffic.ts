import { readFileSync } from "node:fs";
import { getOrMake } from "@kpng/model/collections.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { addGauge } from "@kpng/process/health/metrics.ts";
import { Counter, Gauge, type Registry } from "prom-client";

/**
 * Reason why a connection or a UDP flow ended, or was not begun.
 *
 * - closed: both sides closed the connection, or a UDP flow was idle for its time limit or lost its listener.
 * - client-reset, endpoint-reset: this side reset the connection, and the other side was reset, too.
 * - connect-failed: no endpoint accepted the connection within all attempts.
 * - loop: every endpoint is a frontend of this process, so the connection would come back endlessly.
 * - idle: no byte for a day, or for an hour after one side ended its data.
 * - drained: its endpoint was removed more than an hour ago. For a UDP flow: its client sent a datagram after the
 *   endpoint was removed, or after the frontend passed to another Service.
 * - limit: a limit of connections or flows was reached. For a UDP flow also: a newer one of its client took its place.
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
 * Counters of one Service. They are plain numbers, which are read when metrics are collected: incrementing a metric
 * with labels for each chunk of data would take a microsecond each time.
 *
 * Connections include UDP flows; the protocol is known from the Service port.
 */
export class ServiceTraffic {
  readonly service: ServiceKey;
  /** Number of connections and flows that are open now. */
  open = 0;
  /** Number of connections and flows that were begun or refused. */
  total = 0;
  /** Number of failed attempts to connect that were followed by another attempt. */
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

/** The counters of all Services, by key. A deleted Service keeps its counters as long as it has connections. */
export class TrafficTable {
  readonly #byService = new Map<ServiceKey, ServiceTraffic>();

  /** The counters of the Services that have had a connection or a flow. */
  get used(): readonly ServiceTraffic[] {
    return [...this.#byService.values()].filter(({ total }) => total > 0);
  }

  /** Returns the counters of a Service. New counters begin at 0. */
  of(service: ServiceKey): ServiceTraffic {
    return getOrMake(this.#byService, service, () => new ServiceTraffic(service));
  }

  /** Forgets the counters of Services for which `isServed` returns false and that have no open connections. */
  prune(isServed: (service: ServiceKey) => boolean): void {
    for (const [service, { open }] of this.#byService) {
      if (open === 0 && !isServed(service)) this.#byService.delete(service);
    }
  }
}

/** Maximum numbers of open connections, or of open UDP flows. */
interface Limits {
  readonly total: number;
  /** Limit for one Service, of which one client address may use half. */
  readonly perService: number;
}

interface OpenOfService {
  count: number;
  readonly byClient: Map<string, number>;
}

/**
 * Counts open connections or flows against limits, so that the process refuses new work instead of running out of
 * descriptors or memory. TCP connections and UDP flows are limited separately, because a flood of datagrams must not
 * use up the connections. A single client cannot use up the limit of a Service.
 */
export class TrafficLimit {
  /** May be replaced. Lower limits do not end open connections or flows. */
  limits: Limits;
  readonly #byService = new Map<ServiceTraffic, OpenOfService>();
  #open = 0;

  constructor(limits: Limits) {
    this.limits = limits;
  }

  get open(): number {
    return this.#open;
  }

  /** Takes a place for a client of a Service. Returns false if a limit is reached. */
  tryTake(service: ServiceTraffic, client: string): boolean {
    const { total, perService } = this.limits;
    const ofService = this.#byService.get(service) ?? { count: 0, byClient: new Map() };
    const ofClient = ofService.byClient.get(client) ?? 0;
    if (this.#open >= total || ofService.count >= perService || ofClient >= Math.ceil(perService / 2)) return false;
    this.#open++;
    service.open++;
    ofService.count++;
    ofService.byClient.set(client, ofClient + 1);
    this.#byService.set(service, ofService);
    return true;
  }

  release(service: ServiceTraffic, client: string): void {
    this.#open--;
    service.open--;
    const ofService = this.#byService.get(service);
    if (ofService === undefined) return;
    ofService.count--;
    const ofClient = (ofService.byClient.get(client) ?? 1) - 1;
    if (ofClient === 0) ofService.byClient.delete(client);
    else ofService.byClient.set(client, ofClient);
    if (ofService.count === 0) this.#byService.delete(service);
  }
}

/** Number of descriptors reserved for the connection to the watcher, health checks and files. */
const reservedFiles = 1_024;
/** Memory of the process without connections, in bytes. */
const baseBytes = 150 * 1_048_576;
/** Memory of a connection whose peers sometimes read slowly, in bytes. An idle connection takes less. */
const bytesPerConnection = 48 * 1_024;
/** Smallest default limit, so that something works even with few descriptors or little memory. */
const minimum = 8;

/**
 * Derives limits from the memory and from the descriptors that no listener uses. A connection takes two descriptors and
 * a UDP flow one; a quarter of the descriptors is reserved for flows. Each connection or flow takes 48 KiB of the memory
 * beyond 150 MiB. A single Service may use half of a limit. `maxConnections` takes precedence unless it is 0. Pure.
 */
export function limitsFor(
  { openFiles, memoryBytes }: { readonly openFiles: number; readonly memoryBytes: number },
  maxConnections: number,
): { readonly connections: Limits; readonly flows: Limits } {
  const free = openFiles - Math.min(reservedFiles, openFiles / 4);
  const inMemory = (memoryBytes - baseBytes) / bytesPerConnection;
  const fit = (files: number, most: number): number => Math.max(minimum, Math.floor(Math.min(files, inMemory, most)));
  const make = (total: number): Limits => ({ total, perService: Math.ceil(total / 2) });
  return {
    connections: make(maxConnections || fit((free * 0.75) / 2, 100_000)),
    flows: make(fit(free * 0.25, 10_000)),
  };
}

/** Returns the limit of open files of this process (Node.js has raised it to the hard limit); 1 024 if unknown. */
export function readOpenFilesLimit(): number {
  try {
    const value = /^Max open files\s+(\S+)/m.exec(readFileSync("/proc/self/limits", "utf8"))?.[1];
    return value === "unlimited" ? 1_048_576 : Number(value ?? 1_024);
  } catch {
    return 1_024;
  }
}

interface TrafficSources {
  readonly table: TrafficTable;
  readonly connections: TrafficLimit;
  readonly flows: TrafficLimit;
  /** Number of frontends that could not be opened. */
  readonly closedFrontends: () => number;
}

/**
 * Registers the metrics of the traffic. They read the counters of {@link ServiceTraffic} when they are collected.
 *
 * A Service has series only after its first connection, because a node may serve thousands of Services, most of which
 * have no client there.
 */
export function registerTrafficMetrics(registry: Registry, sources: TrafficSources): void {
  const registers = [registry];
  const { table, connections, flows } = sources;
  const labelNames = ["service"] as const;
  const perService = (name: string, help: string, read: (traffic: ServiceTraffic) => number): void => {
    new Counter({
      name,
      help,
      labelNames,
      registers,
      collect() {
        this.reset();
        for (const traffic of table.used) this.inc({ service: traffic.service }, read(traffic));
      },
    });
  };
  const retried = "Failed attempts to connect to an endpoint that were followed by another attempt";
  perService("kpng_userspace_connections_total", "TCP connections and UDP flows of a Service", ({ total }) => total);
  perService("kpng_userspace_connect_retries_total", retried, ({ retries }) => retries);
  new Counter({
    name: "kpng_userspace_bytes_total",
    help: "Bytes received from the clients of a Service, and sent to them",
    labelNames: ["service", "direction"] as const,
    registers,
    collect() {
      this.reset();
      for (const { service, bytesFromClients, bytesToClients } of table.used) {
        this.inc({ service, direction: "received" }, bytesFromClients);
        this.inc({ service, direction: "sent" }, bytesToClients);
      }
    },
  });
  new Counter({
    name: "kpng_userspace_connections_ended_total",
    help: "Ended or refused TCP connections and UDP flows of a Service, by reason",
    labelNames: ["service", "end"] as const,
    registers,
    collect() {
      this.reset();
      for (const { service, ends } of table.used) for (const [end, count] of ends) this.inc({ service, end }, count);
    },
  });
  new Gauge({
    name: "kpng_userspace_service_connections",
    help: "Open TCP connections and UDP flows of a Service",
    labelNames,
    registers,
    collect() {
      this.reset();
      for (const { service, open } of table.used) this.set({ service }, open);
    },
  });
  const closed = "Frontends that could not be opened, e.g. because other programs use all ports of the range";
  const byKind = (name: string, help: string, read: (limit: TrafficLimit) => number): void => {
    new Gauge({
      name,
      help,
      labelNames: ["kind"],
      registers,
      collect() {
        this.set({ kind: "connections" }, read(connections));
        this.set({ kind: "flows" }, read(flows));
      },
    });
  };
  byKind("kpng_userspace_open", "Open TCP connections and UDP flows of all Services", ({ open }) => open);
  byKind("kpng_userspace_open_limit", "Limit of open TCP connections and UDP flows", ({ limits }) => limits.total);
  addGauge(registry, "kpng_userspace_closed_frontends", closed, sources.closedFrontends);
}
