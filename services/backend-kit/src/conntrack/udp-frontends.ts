import { type Family, families } from "@kpng/model/address.ts";
import type { NodeView, ServiceItem, ServiceView, ViewEndpoint } from "@kpng/model/node-view.ts";
import type { ServicePort } from "@kpng/model/service.ts";

/**
 * Where UDP datagrams for a service port arrive: `address port` for its IPs ("10.96.0.10 53"), `v4 * port` for its node
 * port on the addresses of a family ("v6 * 30053").
 */
export type FrontendKey = string;

/** Who may answer there, as `address port`; `address *` where the view does not tell the port. */
export type Servers = ReadonlySet<string>;

export const ipFrontend = (address: string, port: number): FrontendKey => `${address} ${port}`;
export const nodePortFrontend = (family: Family, port: number): FrontendKey => `${family} * ${port}`;

/** The family of a frontend. */
export function familyOfFrontend(key: FrontendKey): Family {
  if (key.includes("*")) return key.startsWith("v6") ? "v6" : "v4";
  return key.includes(":") ? "v6" : "v4";
}

/**
 * Returns all UDP frontends of a view with their serving endpoints; an empty set where there are none.
 *
 * Policies and topology do not count: what changes them leaves running flows where they are, as it leaves TCP
 * connections. An endpoint that is ready without serving (publishNotReadyAddresses) gets new flows, so it keeps them.
 *
 * *Source:* kube-proxy `conntrack/cleanup.go`, except that it leaves out what has no serving endpoint, and with that
 * leaves flows at dead pods.
 *
 * Pure; O(services + endpoints of those with UDP ports).
 */
export function udpFrontends(view: NodeView): ReadonlyMap<FrontendKey, Servers> {
  const frontends = new Map<FrontendKey, Set<string>>();
  const add = (key: FrontendKey, servers: Iterable<string>): void => {
    const all = frontends.get(key) ?? new Set();
    frontends.set(key, all);
    for (const server of servers) all.add(server);
  };
  for (const serviceView of view.services.values()) {
    for (const port of serviceView.service.ports) {
      if (port.protocol !== "UDP") continue;
      for (const family of families) {
        const servers = serversOf(serviceView, port, family);
        for (const address of addressesOf(serviceView, family)) add(ipFrontend(address, port.port), servers);
        if (port.nodePort !== 0) add(nodePortFrontend(family, port.nodePort), servers);
      }
    }
  }
  return frontends;
}

/** True if a Service has a UDP port. */
export function hasUdpPort(service: ServiceItem | undefined): boolean {
  return service?.service.ports.some((port) => port.protocol === "UDP") ?? false;
}

function addressesOf({ service }: ServiceView, family: Family): readonly string[] {
  const { clusterIPs, externalIPs, loadBalancerIPs } = service;
  return [clusterIPs, externalIPs, loadBalancerIPs].flatMap((set) => set?.[family] ?? []);
}

function serversOf({ endpoints }: ServiceView, port: ServicePort, family: Family): readonly string[] {
  return endpoints
    .filter(({ conditions }) => conditions.serving || conditions.ready)
    .flatMap((endpoint) => {
      const targets = targetPorts(endpoint, port);
      return endpoint.addresses[family].flatMap((address) => targets.map((target) => `${address} ${target}`));
    });
}

function targetPorts(endpoint: ViewEndpoint, port: ServicePort): readonly (number | "*")[] {
  // A Go watcher sends only the ports that differ from what the Service says.
  if (endpoint.ports.length === 0) {
    return [typeof port.targetPort === "number" && port.targetPort !== 0 ? port.targetPort : "*"];
  }
  return endpoint.ports
    .filter(({ name, protocol }) => name === port.name && (protocol === undefined || protocol === "UDP"))
    .map((target) => target.port);
}
