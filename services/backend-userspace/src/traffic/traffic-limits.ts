import { readFileSync } from "node:fs";
import { totalmem } from "node:os";
import type { ServiceTraffic } from "./service-traffic.ts";

/** Maximum numbers of open connections, or of open UDP flows. */
interface Limits {
  readonly total: number;
  /** One client address may take half of it. */
  readonly perService: number;
}

/** What is open of a Service: in all, and by the address of the client. */
interface OpenOfService {
  count: number;
  readonly byClient: Map<string, number>;
}

/**
 * Counts what is open against its limits, so that the process refuses new work instead of running out of descriptors or
 * memory. TCP connections and UDP flows have one each: a flood of datagrams must not use up the connections. No client
 * can take a Service away from all others.
 */
export class TrafficLimit {
  /** May be replaced. Lower limits end nothing that is open. */
  limits: Limits;
  readonly #byService = new Map<ServiceTraffic, OpenOfService>();
  #open = 0;

  constructor(limits: Limits) {
    this.limits = limits;
  }

  get open(): number {
    return this.#open;
  }

  /** Takes a place for a client of a Service; false if a limit is reached. */
  tryTake(service: ServiceTraffic, client: string): boolean {
    const { total, perService } = this.limits;
    const own = this.#byService.get(service) ?? { count: 0, byClient: new Map() };
    const ofClient = own.byClient.get(client) ?? 0;
    if (this.#open >= total || own.count >= perService || ofClient >= Math.ceil(perService / 2)) return false;
    this.#open++;
    service.open++;
    own.count++;
    own.byClient.set(client, ofClient + 1);
    this.#byService.set(service, own);
    return true;
  }

  release(service: ServiceTraffic, client: string): void {
    this.#open--;
    service.open--;
    const own = this.#byService.get(service);
    if (own === undefined) return;
    own.count--;
    const ofClient = (own.byClient.get(client) ?? 1) - 1;
    if (ofClient === 0) own.byClient.delete(client);
    else own.byClient.set(client, ofClient);
    if (own.count === 0) this.#byService.delete(service);
  }
}

/** Descriptors that are kept for the connection to the watcher, health checks, and files. */
const reservedFiles = 1_024;
/** Memory of the process without connections. */
const baseBytes = 150 * 1_048_576;
/** Memory of a connection whose peers read slowly now and then; an idle one takes less. */
const bytesPerConnection = 48 * 1_024;
/** Smallest default limit, so that something works even with few descriptors or little memory. */
const minimum = 8;

/** Resources from which default limits are derived. */
interface Resources {
  /** Descriptors that are not used by listeners. */
  readonly openFiles: number;
  readonly memoryBytes: number;
}

/**
 * Returns the limits that suit descriptors and memory: a connection takes two descriptors, a UDP flow one, and a
 * quarter is for flows; memory is for 48 KiB each beyond 150 MiB. A single Service may take half, unless `perService`
 * says otherwise. Given numbers (not 0) take precedence. Pure.
 */
export function limitsFor(
  { openFiles, memoryBytes }: Resources,
  given: { readonly connections: number; readonly flows: number; readonly perService: number },
): { readonly connections: Limits; readonly flows: Limits } {
  const free = openFiles - Math.min(reservedFiles, openFiles / 4);
  const inMemory = (memoryBytes - baseBytes) / bytesPerConnection;
  const fit = (files: number, most: number): number => Math.max(minimum, Math.floor(Math.min(files, inMemory, most)));
  const make = (total: number): Limits => ({
    total,
    perService: given.perService === 0 ? Math.ceil(total / 2) : Math.min(given.perService, total),
  });
  return {
    connections: make(given.connections === 0 ? fit((free * 0.75) / 2, 100_000) : given.connections),
    flows: make(given.flows === 0 ? fit(free * 0.25, 10_000) : given.flows),
  };
}

/** Returns the cgroup's memory limit or the machine's memory, in bytes. Connections take little of V8's heap. */
export function readMemoryLimit(): number {
  // 0 or a huge number if there is no limit.
  return Math.min(process.constrainedMemory() || Number.POSITIVE_INFINITY, totalmem());
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
