import { type Family, families, isIn } from "@kpng/model/address.ts";
import type { ServiceView, ViewEndpoint } from "@kpng/model/node-view.ts";
import type { ServicePort } from "@kpng/model/service.ts";
import type { Answers } from "./kube-proxy-answers.ts";
import { describeFate, type Question } from "./questions.ts";

/** Address and port that a backend serves. */
interface Frontend {
  readonly view: ServiceView;
  readonly port: ServicePort;
  readonly family: Family;
  readonly hasEndpoints: boolean;
  readonly kind: "cluster" | "external" | "loadBalancer" | "node";
}

/** Returns the answers of a backend with kube-proxy's semantics, computed from the view without rules. */
export function viewAnswers(views: readonly ServiceView[]): Answers {
  const frontends = new Map<string, Frontend>();
  const healthCheckPorts = new Set<string>();
  for (const view of views) {
    if (view.service.isHeadless || view.service.type === "ExternalName") continue;
    for (const [key, frontend] of frontendsOf(view)) frontends.set(key, frontend);
    const { healthCheckNodePort } = view.service;
    if (healthCheckNodePort === 0) continue;
    for (const family of servedFamilies(view)) healthCheckPorts.add(`${family} ${healthCheckNodePort}`);
  }
  return {
    answer(question) {
      const { family, to, protocol, port } = question;
      const frontend = frontends.get(`${family} ${to} ${protocol} ${port}`);
      return frontend === undefined ? "PASS" : answer(frontend, question);
    },
    frontends: [...frontends.keys()].sort(),
    healthCheckPorts: [...healthCheckPorts].sort(),
  };
}

/** Returns the families of the Service's cluster IPs, which are the served ones. */
function servedFamilies({ service }: ServiceView): readonly Family[] {
  return families.filter((family) => (service.clusterIPs?.[family].length ?? 0) > 0);
}

function* frontendsOf(view: ServiceView): Iterable<[string, Frontend]> {
  const { service, portHasEndpoints } = view;
  for (const [index, port] of service.ports.entries()) {
    for (const family of servedFamilies(view)) {
      const common = { view, port, family, hasEndpoints: portHasEndpoints?.[index]?.[family] ?? false };
      const key = (to: string, number: number) => `${family} ${to} ${port.protocol.toLowerCase()} ${number}`;
      const clusterIP = service.clusterIPs?.[family][0] ?? "";
      yield [key(clusterIP, port.port), { ...common, kind: "cluster" }];
      for (const address of service.externalIPs?.[family] ?? []) {
        yield [key(address, port.port), { ...common, kind: "external" }];
      }
      for (const address of service.loadBalancerIPs?.[family] ?? []) {
        yield [key(address, port.port), { ...common, kind: "loadBalancer" }];
      }
      if (port.nodePort !== 0) yield [key("node", port.nodePort), { ...common, kind: "node" }];
    }
  }
}

function answer(frontend: Frontend, { client, from }: Question): string {
  const { view, kind, family, hasEndpoints } = frontend;
  const { internalTrafficPolicy, externalTrafficPolicy, clientIPAffinitySeconds, ipFilters } = view.service;
  // Packets of the node to an external address pass no chain that rejects them: they may leave the node.
  const isRefusable = client !== "node" || kind === "cluster" || kind === "node";
  const refusal = isRefusable ? "REJECT" : "PASS";
  if (!hasEndpoints) return refusal;
  const ranges = ipFilters.flatMap(({ sourceRanges }) => sourceRanges);
  if (kind === "loadBalancer" && !isAdmitted(from, family, ranges)) return "DROP";
  const isInside = client === "pod" || client === "node";
  const policy = kind === "cluster" ? internalTrafficPolicy : isInside ? ("Cluster" as const) : externalTrafficPolicy;
  const set = policy === "Local" ? "local" : "cluster";
  const endpoints = endpointsOf(frontend, ({ use }) => use[set]);
  const scope = kind === "cluster" ? "internal" : "external";
  const byScope = endpointsOf(frontend, ({ scopes }) => scopes[scope]);
  // Scopes, the only field that KPNG's clients read, cannot express the additional endpoints of internal clients.
  if ((kind === "cluster" || !isInside) && byScope.join() !== endpoints.join()) return `Scopes differ: ${byScope}`;
  if (endpoints.length > 0) return describeFate(endpoints, clientIPAffinitySeconds);
  return policy === "Local" ? "DROP" : refusal;
}

/**
 * Returns whether a client is admitted. Only ranges of the family count; one for all addresses overrides the others.
 */
function isAdmitted(from: string, family: Family, sourceRanges: readonly string[]): boolean {
  const ranges = sourceRanges.filter((range) => range.includes(":") === (family === "v6"));
  return ranges.length === 0 || ranges.some((range) => range.endsWith("/0") || isIn(from, range));
}

function endpointsOf(frontend: Frontend, isUsed: (endpoint: ViewEndpoint) => boolean): readonly string[] {
  const { view, port, family } = frontend;
  return view.endpoints.filter(isUsed).flatMap(({ addresses, ports }) => {
    const address = addresses[family][0];
    if (address === undefined) return [];
    const host = family === "v6" ? `[${address}]` : address;
    // An endpoint without ports answers on the target port, and only for an unnamed service port.
    if (ports.length === 0) return port.name === "" ? [`${host}:${port.targetPort}`] : [];
    return ports
      .filter(({ name, protocol }) => name === port.name && (protocol ?? port.protocol) === port.protocol)
      .map((endpointPort) => `${host}:${endpointPort.port}`);
  });
}
