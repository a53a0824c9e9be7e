import { type Family, families } from "@kpng/model/address.ts";
import type { EndpointPort, EndpointSlice } from "@kpng/model/endpoint.ts";
import type { EndpointUse } from "@kpng/model/node-view.ts";
import type { Protocol, Service, ServicePort } from "@kpng/model/service.ts";
import type { ChoosingNode } from "../../view/choose-endpoints.ts";
import { type ChoiceReason, explainChoice } from "../../view/explain-choice.ts";
import { type MergedEndpoint, mergeSlices } from "../../view/merge-slices.ts";
import { choosePortEndpoints } from "../../view/service-view.ts";

/** Why an endpoint is used, or is not: for want of a choice, or by it. */
export type DecisionReason =
  | ChoiceReason
  | "duplicate"
  | "no-service-port"
  | "no-such-port"
  | "other-family"
  | "not-proxied"
  | "other-service-proxy"
  | "no-service";

/** What a node does with an endpoint, for one port of it in one family. */
export interface Decision {
  readonly namespace: string;
  readonly service: string;
  readonly slice: string;
  /** Of the endpoint; of the Service for "no-such-port". */
  readonly portName: string;
  readonly protocol: Protocol | number | undefined;
  readonly family: Family;
  readonly address: string;
  /** 0 for an endpoint that names none. */
  readonly port: number;
  readonly podName: string;
  readonly nodeName: string;
  /** New traffic goes there. */
  readonly isUsed: boolean;
  readonly reason: DecisionReason;
  /** How the node uses it; undefined if it is not told of it. */
  readonly use: EndpointUse | undefined;
  /** Of each set; undefined where the choice does not come so far. */
  readonly reasons: { readonly cluster?: ChoiceReason | undefined; readonly local?: ChoiceReason | undefined };
}

/** The slices of a Service, which need not exist. */
export interface ExplainedService {
  readonly namespace: string;
  readonly name: string;
  readonly service: Service | undefined;
  readonly slices: readonly EndpointSlice[];
}

/**
 * Says what a node does with each endpoint of a Service, and why: what is told and used is what the view has, because
 * both come from {@link choosePortEndpoints}.
 *
 * Pure; O(endpoints × ports).
 */
export function explainService(
  { namespace, name, service, slices }: ExplainedService,
  node: ChoosingNode,
  proxyName: string,
): readonly Decision[] {
  const merged = mergeSlices(slices);
  const decisions: Decision[] = [];
  const isServed = service?.proxyName === proxyName;
  const chosen = new Map(
    isServed
      ? [...choosePortEndpoints(service, slices, node, merged.groups)].map((each) => [each.group, each] as const)
      : [],
  );
  for (const one of merged.endpoints) {
    for (const [index, { family, port }] of places(one).entries()) {
      const portEndpoint = one.portEndpoints[index];
      const group = portEndpoint && chosen.get(portEndpoint.group);
      const use = portEndpoint && group?.useOf(portEndpoint);
      const reasons =
        portEndpoint === undefined || group === undefined
          ? {}
          : {
              cluster: explainChoice(portEndpoint, "cluster", group.choice, node),
              local: explainChoice(portEndpoint, "local", group.choice, node),
            };
      const refused =
        refusal(service, proxyName, family, port) ?? (portEndpoint === undefined ? "duplicate" : undefined);
      const isInSet = use !== undefined && (use.cluster || use.local);
      decisions.push({
        ...identity(namespace, name, one, family, port),
        isUsed: refused === undefined && isInSet,
        reason: refused ?? overall(use, reasons),
        use,
        reasons,
      });
    }
    if (isServed) decisions.push(...missingPorts(service, one));
  }
  return decisions;
}

interface FacetPlace {
  readonly family: Family;
  readonly port: EndpointPort | undefined;
}

/** In the order of MergedEndpoint.portEndpoints. */
function places({ endpoint }: MergedEndpoint): readonly FacetPlace[] {
  const ports = endpoint.ports.length === 0 ? [undefined] : endpoint.ports;
  return families
    .filter((family) => endpoint.addresses[family].length > 0)
    .flatMap((family) => ports.map((port) => ({ family, port })));
}

function identity(
  namespace: string,
  service: string,
  { endpoint, slice }: MergedEndpoint,
  family: Family,
  port: EndpointPort | undefined,
) {
  return {
    namespace,
    service,
    slice: slice.name,
    portName: port?.name ?? "",
    protocol: port?.protocol,
    family,
    address: endpoint.addresses[family][0] ?? "",
    port: port?.port ?? 0,
    podName: endpoint.podName,
    nodeName: endpoint.nodeName,
  };
}

/** Why nothing of this family and port is used, whatever the choice; undefined if the choice decides. */
function refusal(
  service: Service | undefined,
  proxyName: string,
  family: Family,
  port: EndpointPort | undefined,
): DecisionReason | undefined {
  if (service === undefined) return "no-service";
  if (service.proxyName !== proxyName) return "other-service-proxy";
  if (service.isHeadless || service.type === "ExternalName") return "not-proxied";
  if (!isFamilyServed(service, family)) return "other-family";
  return service.ports.some((each) => answersFor(port, each)) ? undefined : "no-service-port";
}

/** A Service of one family is served in that one alone; one without cluster IPs, which only a state file has, in both. */
export function isFamilyServed({ clusterIPs }: Service, family: Family): boolean {
  const other = family === "v4" ? "v6" : "v4";
  return (clusterIPs?.[family].length ?? 0) > 0 || (clusterIPs?.[other].length ?? 0) === 0;
}

/** True if an endpoint's port is the one that a service port leads to. */
export function answersFor(
  port: Pick<EndpointPort, "name" | "protocol"> | undefined,
  servicePort: ServicePort,
): boolean {
  if (port === undefined) return servicePort.name === "";
  return port.name === servicePort.name && (port.protocol === undefined || port.protocol === servicePort.protocol);
}

/** Service ports for which the endpoint has none, though it is ready or not. */
function missingPorts(service: Service, one: MergedEndpoint): readonly Decision[] {
  if (service.isHeadless || service.type === "ExternalName") return [];
  const family = families.find((each) => one.endpoint.addresses[each].length > 0 && isFamilyServed(service, each));
  if (family === undefined) return [];
  const all = places(one);
  return service.ports
    .filter((servicePort) => !all.some(({ port }) => answersFor(port, servicePort)))
    .map(({ name, protocol }) => ({
      ...identity(service.namespace, service.name, one, family, undefined),
      portName: name,
      protocol,
      isUsed: false,
      reason: "no-such-port",
      use: undefined,
      reasons: {},
    }));
}

/** Of the set that it is in, or that comes closest: one that nobody needs says least. */
function overall(use: EndpointUse | undefined, { cluster, local }: Decision["reasons"]): DecisionReason {
  if (use?.cluster === true || use?.local !== true) {
    const closest = use?.cluster === true || cluster !== "set-not-needed" ? cluster : local;
    return closest ?? "not-ready";
  }
  return local ?? "ready";
}
