import { noAddresses } from "@kpng/model/address.ts";
import type { Endpoint, EndpointSlice } from "@kpng/model/endpoint.ts";
import { isRecord } from "@kpng/model/is-record.ts";
import type { Node } from "@kpng/model/node.ts";
import type { Protocol, Service } from "@kpng/model/service.ts";
import { shareConditions, shareText } from "@kpng/model/shared-values.ts";
import { compareText } from "@kpng/model/text-order.ts";
import { type FieldProblem, problemsOf } from "../../decode/decoded.ts";
import { type DocumentContent, type DocumentNote, emptyContent, type LocatedObject } from "./document-content.ts";
import { type State, type StateEndpoint, type StateNode, type StateService, stateShape } from "./state-shape.ts";

/**
 * Decodes a state file of KPNG: a cluster state as YAML, as `kpng SOURCE to-file` writes it. Absent fields get KPNG's
 * defaults; the namespace defaults to "default". An endpoint belongs to the Service that contains it, whatever its own
 * fields say.
 *
 * Returns all problems, one for each unknown key, and the Services and nodes without problems. Pure.
 *
 * `readDocument` calls it for every document without a kind. Separate from `stateShape`, which defines which files are
 * valid: this function converts them to our types.
 */
export function readState(value: unknown): DocumentContent {
  const parsed = stateShape.safeParse(value);
  if (parsed.success) return convert(parsed.data, (_list, index) => index);
  const problems = problemsOf(parsed.error);
  const good = withoutBad(value, problems);
  const rest = stateShape.safeParse(good.value);
  return { ...(rest.success ? convert(rest.data, good.indexOf) : emptyContent), problems };
}

/** Position in the document of an element of a list that lacks the bad ones. */
type IndexOf = (list: "services" | "nodes", index: number) => number;

/** Returns the state without the Services and nodes that have problems. */
function withoutBad(value: unknown, problems: readonly FieldProblem[]): { value: unknown; indexOf: IndexOf } {
  const state = isRecord(value) ? value : {};
  const goodOf = (list: "services" | "nodes"): readonly (readonly [number, unknown])[] => {
    const bad = new Set(problems.filter(({ path }) => path[0] === list).map(({ path }) => path[1]));
    const entries = Array.isArray(state[list]) ? [...state[list].entries()] : [];
    return bad.has(undefined) ? [] : entries.filter(([index]) => !bad.has(index));
  };
  const good = { services: goodOf("services"), nodes: goodOf("nodes") };
  const elements = (list: "services" | "nodes"): readonly unknown[] => good[list].map(([, element]) => element);
  return {
    value: { services: elements("services"), nodes: elements("nodes") },
    indexOf: (list, index) => good[list][index]?.[0] ?? index,
  };
}

function convert(state: State, indexOf: IndexOf): DocumentContent {
  const services: LocatedObject<Service>[] = [];
  const slices: LocatedObject<EndpointSlice>[] = [];
  const notes: DocumentNote[] = [];
  for (const [at, entry] of (state.services ?? []).entries()) {
    const index = indexOf("services", at);
    const service = toService(entry.service);
    services.push({ path: ["services", index, "service"], value: service });
    slices.push(...toSlices(service, entry.endpoints ?? [], index, notes));
  }
  const nodes = (state.nodes ?? []).map((node, at) => ({ path: ["nodes", indexOf("nodes", at)], value: toNode(node) }));
  return { ...emptyContent, services, slices, nodes, notes };
}

const protocols: readonly (Protocol | undefined)[] = [undefined, "TCP", "UDP", "SCTP"];

function toNode(node: StateNode): Node {
  return {
    name: node.name,
    zone: node.topology?.zone ?? "",
    labels: node.labels ?? {},
    annotations: node.annotations ?? {},
    addresses: (node.addresses ?? []).map((parsed) => parsed.address),
    podCIDRs: node.podcidrs ?? [],
    isEligible: node.iseligible ?? true,
  };
}

function toService(service: StateService): Service {
  return {
    namespace: service.namespace || "default",
    name: service.name,
    type: service.type || "ClusterIP",
    ...(service.createdseconds ? { createdSeconds: service.createdseconds } : {}),
    ...(service.uid ? { uid: service.uid } : {}),
    proxyName: service.proxyname ?? "",
    labels: service.labels ?? {},
    annotations: service.annotations ?? {},
    isHeadless: service.ips?.headless ?? false,
    clusterIPs: service.ips?.clusterips ?? undefined,
    externalIPs: service.ips?.externalips ?? undefined,
    loadBalancerIPs: service.ips?.loadbalancerips ?? undefined,
    proxyModeLoadBalancerIPs: service.proxymodeloadbalancerips ?? noAddresses,
    ipFilters: (service.ipfilters ?? []).map(({ targetips, sourceranges }) => ({
      ...(targetips ? { targetIPs: targetips } : {}),
      sourceRanges: sourceranges ?? [],
    })),
    mapIP: service.mapip ?? false,
    ports: (service.ports ?? []).map((port) => ({
      name: port.name ?? "",
      protocol: protocols[port.protocol ?? 0] ?? "TCP",
      port: port.port,
      nodePort: port.nodeport ?? 0,
      // Like KPNG, prefers the name (`endpoint.go`, PortMapping).
      targetPort: port.targetportname || (port.targetport ?? 0),
    })),
    internalTrafficPolicy: service.internaltraffictolocal ? "Local" : "Cluster",
    externalTrafficPolicy: service.externaltraffictolocal ? "Local" : "Cluster",
    clientIPAffinitySeconds: service.sessionaffinity?.clientip?.timeoutseconds,
    healthCheckNodePort: service.healthchecknodeport ?? 0,
  };
}

/**
 * Makes the slices of a Service: one for each `sourcename` of its endpoints, and one named like the Service for
 * endpoints without it.
 *
 * Endpoints in the latter slice have KPNG's key, the bare pod name, so a pod can be in it only once. KPNG lost further
 * endpoints of the pod. Here they get slices `NAME~2`, `NAME~3` and so on; Kubernetes names contain no tilde.
 */
function toSlices(
  service: Service,
  endpoints: readonly StateEndpoint[],
  index: number,
  notes: DocumentNote[],
): readonly LocatedObject<EndpointSlice>[] {
  const slices = new Map<string, { readonly path: (string | number)[]; readonly endpoints: Endpoint[] }>();
  const countByPod = new Map<string, number>();
  for (const [position, stated] of endpoints.entries()) {
    const path = ["services", index, "endpoints", position];
    const endpoint = toEndpoint(stated);
    if (endpoint.addresses.v4.length + endpoint.addresses.v6.length === 0) {
      notes.push({ path, note: "endpoint ignored: no address" });
      continue;
    }
    let name = stated.sourcename || service.name;
    if (name === service.name && endpoint.podName !== "") {
      const count = (countByPod.get(endpoint.podName) ?? 0) + 1;
      countByPod.set(endpoint.podName, count);
      if (count > 1) name = `${service.name}~${count}`;
    }
    const slice = slices.get(name);
    if (slice === undefined) slices.set(name, { path, endpoints: [endpoint] });
    else slice.endpoints.push(endpoint);
  }
  return [...slices].map(([name, slice]) => ({
    path: slice.path,
    value: {
      namespace: service.namespace,
      name,
      serviceName: service.name,
      endpoints: slice.endpoints,
      hasPodKeys: name === service.name,
    },
  }));
}

function toEndpoint(stated: StateEndpoint): Endpoint {
  const ready = stated.conditions ? (stated.conditions.ready ?? false) : true;
  return {
    addresses: stated.endpoint?.ips ?? noAddresses,
    ports: (stated.endpoint?.portoverrides ?? []).map(({ name, port, protocol }) => ({
      name: name ?? "",
      port,
      ...(protocol ? { protocol: protocols[protocol] } : {}),
    })),
    conditions: shareConditions(ready, stated.conditions?.serving ?? ready, stated.conditions?.terminating ?? false),
    podName: stated.podname ?? "",
    hostname: stated.endpoint?.hostname ?? "",
    nodeName: shareText(stated.topology?.node ?? ""),
    zone: shareText(stated.topology?.zone ?? ""),
    hintedZones: [...(stated.hints?.zones ?? [])].sort(compareText),
    hintedNodes: [...(stated.hints?.nodes ?? [])].sort(compareText),
  };
}
