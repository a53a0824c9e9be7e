import { readFileSync } from "node:fs";
import type { ServiceTraffic } from "./service-traffic.ts";

/** Maximum numbers of open connections, or of open UDP flows. */
export interface Limits {
  readonly total: number;
  readonly perService: number;
}

/**
 * Counts what is open against its limits, so that the process refuses new work instead of running out of descriptors or
 * memory. TCP connections and UDP flows have one each: a flood of datagrams must not use up the connections.
 */
export class TrafficLimit {
  readonly limits: Limits;
  readonly #openByService = new Map<ServiceTraffic, number>();
  #open = 0;

  constructor(limits: Limits) {
    this.limits = limits;
  }

  get open(): number {
    return this.#open;
  }

  /** Takes a place for a Service; false if a limit is reached. */
  tryTake(service: ServiceTraffic): boolean {
    const own = this.#openByService.get(service) ?? 0;
    if (this.#open >= this.limits.total || own >= this.limits.perService) return false;
    this.#open++;
    this.#openByService.set(service, own + 1);
    service.open++;
    return true;
  }

  /** Returns a place. */
  release(service: ServiceTraffic): void {
    this.#open--;
    service.open--;
    const own = (this.#openByService.get(service) ?? 1) - 1;
    if (own === 0) this.#openByService.delete(service);
    else this.#openByService.set(service, own);
  }
}

/** Descriptors that are kept for listeners, the connection to the watcher, and files. */
const reservedFiles = 1_024;

/**
 * Returns the limits that suit a number of descriptors: a connection takes two, a UDP flow one, and a quarter is for
 * flows. A single Service may take half, unless `perService` says otherwise. Given numbers (not 0) take precedence.
 */
export function limitsFor(
  openFiles: number,
  given: { readonly connections: number; readonly flows: number; readonly perService: number },
): { readonly connections: Limits; readonly flows: Limits } {
  const free = Math.max(openFiles - Math.min(reservedFiles, openFiles / 4), 8);
  const make = (total: number): Limits => ({
    total,
    perService: given.perService === 0 ? Math.ceil(total / 2) : Math.min(given.perService, total),
  });
  return {
    connections: make(given.connections === 0 ? Math.min(Math.floor((free * 0.75) / 2), 100_000) : given.connections),
    flows: make(given.flows === 0 ? Math.min(Math.floor(free * 0.25), 10_000) : given.flows),
  };
}

/** Returns the limit of open files of this process (Node.js has raised it to the hard limit); 1 024 if unknown. */
export function readOpenFilesLimit(path = "/proc/self/limits"): number {
  try {
    const value = /^Max open files\s+(\S+)/m.exec(readFileSync(path, "utf8"))?.[1];
    return value === "unlimited" ? 1_048_576 : Number(value ?? 1_024);
  } catch {
    return 1_024;
  }
}
