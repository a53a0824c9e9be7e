import { families } from "@kpng/model/address.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import type { FlowEvent } from "./flow-event.ts";

/** Number of Services with counters of their own. Each has five series. */
const maxServices = 1_000;

/** Label of the Services beyond {@link maxServices}. No Service has this key. */
export const otherServices = "other";

/** Counters of one Service on this node. */
export interface ServiceCounts {
  connections: number;
  packetsFromClients: number;
  bytesFromClients: number;
  packetsToClients: number;
  bytesToClients: number;
}

/**
 * Counts flows by Service: connections when they begin, packets and bytes when they end. `ServiceTraffic` adds events
 * to it, and metrics (`registerServiceTraffic`) and reports (`TrafficReporter`) read it. Separate, because it only
 * counts.
 *
 * *Bound:* {@link maxServices} Services; those that come later share the counters {@link otherServices}. A Service that
 * is gone keeps its counters until another one needs the place.
 */
export class ServiceTrafficCounts {
  readonly #counts = new Map<ServiceKey | typeof otherServices, ServiceCounts>();
  #services: ReadonlyMap<string, ServiceKey> = new Map();
  #present: ReadonlyMap<ServiceKey, unknown> = new Map();
  /** Whether Services may have gone since the last search for their counters. */
  #mayHaveGone = false;

  /** Counters of the Services that have had a flow. */
  get all(): ReadonlyMap<ServiceKey | typeof otherServices, ServiceCounts> {
    return this.#counts;
  }

  /** Sets the view whose Services are counted from now on. O(frontends). */
  setView({ services }: NodeView): void {
    this.#services = frontendsOf(services);
    this.#present = services;
    this.#mayHaveGone = true;
  }

  /** Counts an event. Flows to other destinations are ignored. */
  add(event: FlowEvent): void {
    const { protocol, destination, destinationPort } = event;
    const family = destination.includes(":") ? "v6" : "v4";
    const service =
      this.#services.get(`${protocol} ${destination} ${destinationPort}`) ??
      this.#services.get(`${protocol} ${family} ${destinationPort}`);
    if (service === undefined) return;
    const counts = this.#countsOf(service);
    if (event.kind === "began") counts.connections += 1;
    counts.packetsFromClients += event.packetsFromClient;
    counts.bytesFromClients += event.bytesFromClient;
    counts.packetsToClients += event.packetsToClient;
    counts.bytesToClients += event.bytesToClient;
  }

  #countsOf(service: ServiceKey): ServiceCounts {
    const known = this.#counts.get(service);
    if (known !== undefined) return known;
    // Once for each view: a search for each event of a Service without counters would take most of the CPU time.
    if (this.#counts.size >= maxServices && this.#mayHaveGone) {
      this.#mayHaveGone = false;
      for (const key of this.#counts.keys()) {
        if (key !== otherServices && !this.#present.has(key)) this.#counts.delete(key);
      }
    }
    const key = this.#counts.size >= maxServices ? otherServices : service;
    const counts = this.#counts.get(key) ?? {
      connections: 0,
      packetsFromClients: 0,
      bytesFromClients: 0,
      packetsToClients: 0,
      bytesToClients: 0,
    };
    this.#counts.set(key, counts);
    return counts;
  }
}

/** Returns the Service of each frontend: `TCP 10.96.0.1 80` for an address, `TCP v4 30080` for a node port. */
function frontendsOf(services: NodeView["services"]): ReadonlyMap<string, ServiceKey> {
  const frontends = new Map<string, ServiceKey>();
  for (const [key, { service }] of services) {
    const sets = [service.clusterIPs, service.externalIPs, service.loadBalancerIPs];
    for (const { protocol, port, nodePort } of service.ports) {
      for (const family of families) {
        const addresses = sets.flatMap((set) => set?.[family] ?? []);
        for (const address of addresses) frontends.set(`${protocol} ${address} ${port}`, key);
        if (nodePort !== 0) frontends.set(`${protocol} ${family} ${nodePort}`, key);
      }
    }
  }
  return frontends;
}
