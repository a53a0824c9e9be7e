import { type Family, families } from "@kpng/model/address.ts";
import type { NodeView, ServiceItem, ServiceView, ViewEndpoint } from "@kpng/model/node-view.ts";
import { type ServicePort, serviceKey } from "@kpng/model/service.ts";
import { FrontendClaims, frontendId } from "@kpng/service-plan/frontend-claims.ts";
import { planService } from "@kpng/service-plan/plan-service.ts";
import type { NodePlan } from "@kpng/service-plan/service-plan.ts";

/**
 * Identifies a UDP frontend, an address and port at which a Service receives datagrams. *Shape:* `10.96.0.10 53` for an
 * IP of the Service; `v6 * 30053` for its node port, on all node-port addresses of a family.
 */
export type FrontendKey = string;

/** Endpoints that may answer at a frontend, as `address port`; `address *` if the view does not have the port. */
export type Servers = ReadonlySet<string>;

/**
 * Local listeners to which packet rules redirect frontends, each with the frontend that it serves. *Shape of a
 * listener:* `192.0.2.1 20173`.
 */
export type UdpListeners = ReadonlyMap<string, FrontendKey>;

/** Key of a frontend at an IP of a Service. */
export const ipFrontend = (address: string, port: number): FrontendKey => `${address} ${port}`;
/** Key of a frontend at a node port. */
export const nodePortFrontend = (family: Family, port: number): FrontendKey => `${family} * ${port}`;

/** Returns the IP family of a frontend. */
export function familyOfFrontend(key: FrontendKey): Family {
  if (key.includes("*")) return key.startsWith("v6") ? "v6" : "v4";
  return key.includes(":") ? "v6" : "v4";
}

/**
 * Returns all UDP frontends of a view with their serving endpoints, for `StaleFlowCleaner`. A frontend without such
 * endpoints has an empty set. `isStale` compares flows with the result.
 *
 * If several Services claim a frontend, only endpoints of its owner answer there; see `FrontendClaims`. With those of
 * all of them, a Service with the external IP of another one would keep clients that it got before the other one was
 * created.
 *
 * Traffic policies and topology hints are ignored: like a TCP connection, a running flow stays at its endpoint when
 * they change. An endpoint that is ready but not serving (publishNotReadyAddresses) gets new flows, so it keeps them.
 *
 * *Source:* kube-proxy `conntrack/cleanup.go`, which however skips frontends without serving endpoints and therefore
 * leaves their flows at dead pods.
 *
 * `listeners` are servers, too: those of a proxy that carries traffic. Flows that a proxy before it has sent directly
 * to an endpoint stay there.
 *
 * Pure; O(services + endpoints of those with UDP ports).
 */
export function udpFrontends(view: NodeView, listeners: UdpListeners = new Map()): ReadonlyMap<FrontendKey, Servers> {
  const frontends = new Map<FrontendKey, Set<string>>();
  const add = (key: FrontendKey, servers: Iterable<string>): void => {
    const all = frontends.get(key) ?? new Set();
    frontends.set(key, all);
    for (const server of servers) all.add(server);
  };
  const services = [...view.services.values()].filter(hasUdpPort);
  for (const family of families) {
    const claims = new FrontendClaims();
    for (const { service } of services) claims.put(planService({ service, endpoints: [] }, claimingNode(family)));
    for (const serviceView of services) {
      const key = serviceKey(serviceView.service);
      const isOwned = (address: string | undefined, port: number): boolean =>
        claims.ownerOf(frontendId({ address, port, protocol: "UDP" })) === key;
      for (const port of serviceView.service.ports) {
        if (port.protocol !== "UDP") continue;
        const servers = serversOf(serviceView, port, family);
        for (const address of addressesOf(serviceView, family)) {
          if (isOwned(address, port.port)) add(ipFrontend(address, port.port), servers);
        }
        if (isOwned(undefined, port.nodePort)) add(nodePortFrontend(family, port.nodePort), servers);
      }
    }
  }
  for (const [listener, frontend] of listeners) frontends.get(frontend)?.add(listener);
  return frontends;
}

/** A node for plans of which only the places of the frontends are used: they do not depend on the node. */
function claimingNode(family: Family): NodePlan {
  return {
    family,
    podTraffic: undefined,
    isMasqueradeAll: false,
    nodePortAddresses: [],
    isLoopbackNodePorts: false,
    nodeAddress: undefined,
    serviceCIDRs: [],
  };
}

/** Returns true if a Service has a UDP port. */
export function hasUdpPort(service: ServiceItem | undefined): boolean {
  return service?.service.ports.some((port) => port.protocol === "UDP") ?? false;
}

function addressesOf({ service }: ServiceView, family: Family): readonly string[] {
  const { clusterIPs, externalIPs, loadBalancerIPs } = service;
  return [clusterIPs, externalIPs, loadBalancerIPs].flatMap((set) => set?.[family] ?? []);
}

/** Returns the endpoints that may answer at a port, as `address port`. */
function serversOf({ endpoints }: ServiceView, port: ServicePort, family: Family): readonly string[] {
  return endpoints
    .filter(({ conditions }) => conditions.serving || conditions.ready)
    .flatMap((endpoint) => {
      const targets = targetPorts(endpoint, port);
      return endpoint.addresses[family].flatMap((address) => targets.map((target) => `${address} ${target}`));
    });
}

function targetPorts(endpoint: ViewEndpoint, port: ServicePort): readonly (number | "*")[] {
  // A Go watcher sends only ports that differ from the Service's target ports.
  if (endpoint.ports.length === 0) {
    return [typeof port.targetPort === "number" && port.targetPort !== 0 ? port.targetPort : "*"];
  }
  return endpoint.ports
    .filter(({ name, protocol }) => name === port.name && (protocol === undefined || protocol === "UDP"))
    .map((target) => target.port);
}
