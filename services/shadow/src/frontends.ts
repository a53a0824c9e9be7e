import { isIn } from "@kpng/model/cidr.ts";
import { onlyDestination, onlyPort } from "@kpng/packet-tracer/candidates.ts";
import type { Rule, Ruleset } from "@kpng/packet-tracer/rule.ts";
import type { PlannedFrontend, PlannedNode } from "@kpng/service-plan/planned-node.ts";
import type { PodTraffic, Route } from "@kpng/service-plan/service-plan.ts";

/**
 * An address and port that rules or plans are about. `comparePackets` calls the functions of this file, which find the
 * frontends on both sides: in kube-proxy's rules and in our plans. Separate from `probesOf`, which makes packets to all
 * of them.
 */
export interface ProbedFrontend {
  /** "tcp", "udp" or "sctp". */
  readonly protocol: string;
  /** Undefined for the node's own addresses: a node port, or a port for health checks. */
  readonly address: string | undefined;
  readonly port: number;
  /** *Shape:* `namespace/name:port`; "" if the comments of the rules do not contain it. */
  readonly servicePort: string;
  /** CIDRs and single addresses of clients that are treated differently from others. */
  readonly sources: ReadonlySet<string>;
  /** Interfaces whose packets are treated differently, as rules contain them: `cbr0`, `veth+`. */
  readonly interfaces: ReadonlySet<string>;
}

/** *Shape:* `tcp 10.96.0.10 80`, `tcp node 30080`. */
export type FrontendKey = string;

/** Returns the key by which frontends of both sides are matched. */
export function frontendKey({
  protocol,
  address,
  port,
}: Pick<ProbedFrontend, "protocol" | "address" | "port">): FrontendKey {
  return `${protocol} ${address ?? "node"} ${port}`;
}

/** Returns the frontends of a node's plans. Pure; O(frontends). */
export function frontendsOfPlans({ node, frontends }: PlannedNode): ReadonlyMap<FrontendKey, ProbedFrontend> {
  const found = new Map<FrontendKey, ProbedFrontend>();
  const add = (frontend: ProbedFrontend): void => void found.set(frontendKey(frontend), frontend);
  const none: ReadonlySet<string> = new Set();
  for (const planned of frontends.values()) {
    const { frontend, port, service } = planned;
    const { address, protocol, port: number } = frontend;
    const sources = new Set(sourcesOf(planned));
    const interfaces = new Set<string>();
    if (distinguishesPods(planned)) addPods(node.podTraffic, sources, interfaces);
    add({ protocol: protocol.toLowerCase(), address, port: number, servicePort: port.name, sources, interfaces });
    if (service.healthCheck === undefined) continue;
    const check = { protocol: "tcp", address: undefined, port: service.healthCheck.port };
    add({ ...check, servicePort: service.key, sources: none, interfaces: none });
  }
  return found;
}

/** A port that hardly any Service has: RFC 6335 reserves it. */
const unknownPort = 65_535;

/**
 * Returns TCP port 65535 of each cluster IP, at which hardly any Service answers. These frontends are compared too,
 * because the modes of kube-proxy treat packets to unknown ports differently.
 */
export function unknownPorts({ frontends }: PlannedNode): ReadonlyMap<FrontendKey, ProbedFrontend> {
  const none: ReadonlySet<string> = new Set();
  const found = new Map<FrontendKey, ProbedFrontend>();
  for (const { frontend, service } of frontends.values()) {
    if (frontend.kind !== "clusterIP" || frontend.address === undefined) continue;
    const at = { protocol: "tcp", address: frontend.address, port: unknownPort };
    found.set(frontendKey(at), { ...at, servicePort: service.key, sources: none, interfaces: none });
  }
  return found;
}

function sourcesOf({ frontend: { sources } }: PlannedFrontend): readonly string[] {
  if (sources === undefined) return [];
  return [...sources.ranges, ...sources.ownAddresses.map((own) => `${own}/${own.includes(":") ? 128 : 32}`)];
}

function distinguishesPods({ frontend: { routes } }: PlannedFrontend): boolean {
  const text = (route: Route): string => JSON.stringify(route);
  return text(routes.pod) !== text(routes.outside);
}

function addPods(traffic: PodTraffic | undefined, sources: Set<string>, interfaces: Set<string>): void {
  switch (traffic?.kind) {
    case "source":
      sources.add(traffic.cidr);
      break;
    case "interface":
      interfaces.add(traffic.name);
      break;
    case "interfacePrefix":
      interfaces.add(`${traffic.prefix}+`);
      break;
    case undefined:
      break;
  }
}

/**
 * Returns the frontends that a rule set has a rule for, whatever the rule does.
 *
 * Pure; O(rules). A rule counts if it names a protocol and one port. The Service port is in the comment that kube-proxy
 * writes.
 */
export function frontendsOfRules(ruleset: Ruleset): ReadonlyMap<FrontendKey, ProbedFrontend> {
  const found = new Map<
    FrontendKey,
    ProbedFrontend & { readonly sources: Set<string>; readonly interfaces: Set<string> }
  >();
  for (const chains of ruleset.values()) {
    for (const rules of chains.values()) {
      for (const rule of rules) {
        const at = placeOf(rule);
        if (at === undefined) continue;
        const key = frontendKey(at);
        const held = found.get(key) ?? {
          ...at,
          servicePort: "",
          sources: new Set<string>(),
          interfaces: new Set<string>(),
        };
        const named = held.servicePort === "" ? { ...held, servicePort: servicePortOf(rule) } : held;
        found.set(key, named);
        collectClients(chains, rule, named, new Set());
      }
    }
  }
  return found;
}

function placeOf({ matches, text }: Rule): Pick<ProbedFrontend, "protocol" | "address" | "port"> | undefined {
  const port = onlyPort(matches);
  const protocol = matches.find((match) => match.kind === "protocol" && !match.isNot);
  if (port === undefined || protocol?.kind !== "protocol") return undefined;
  // After DNAT, the address is that of an endpoint.
  if (matches.some((match) => match.kind === "state" && match.states.includes("DNAT"))) return undefined;
  // kube-proxy's nftables mode serves node ports at the addresses in this set.
  const isNodePort = text.includes('"@nodeport-ips"');
  return { protocol: protocol.protocol, address: isNodePort ? undefined : onlyDestination(matches), port };
}

/** Names of chains of kube-proxy's nftables mode. *Shape:* `external-ULMVA6XW-ns/svc/tcp/p80`. */
const chainOfPort = /^(?:service|external|firewall)-[A-Z2-7]{8}-([^/]+\/[^/]+)\/(?:tcp|udp|sctp)\/(.*)$/;

/**
 * Returns the Service port that a rule is for: from the name of the chain that it leads to, or from the first word of
 * its comment; "" if neither names one.
 */
function servicePortOf({ text, target }: Rule): string {
  const [, service, port] = (target.kind === "jump" ? chainOfPort.exec(target.chain) : undefined) ?? [];
  if (service !== undefined) return port === "" ? service : `${service}:${port}`;
  const comment = /(?:--comment "?|"comment":")(?:masquerade traffic for |pod traffic for )?([^\s"/]+\/[^\s"]+)/;
  return comment.exec(text)?.[1] ?? "";
}

/** Chains that all Services share and that treat all clients alike. */
const isShared = (chain: string): boolean => chain.endsWith("-MARK-MASQ");

/** Adds the clients that a rule, and the chains that it jumps to, treat differently from others. */
function collectClients(
  chains: ReadonlyMap<string, readonly Rule[]>,
  { matches, target }: Rule,
  into: { readonly sources: Set<string>; readonly interfaces: Set<string> },
  visited: Set<string>,
): void {
  for (const match of matches) {
    if (match.kind === "address" && match.of === "source") into.sources.add(match.cidr);
    if (match.kind === "interface" && match.of === "in") into.interfaces.add(match.pattern);
  }
  if (target.kind !== "jump" || isShared(target.chain) || visited.has(target.chain)) return;
  visited.add(target.chain);
  const rules = chains.get(target.chain) ?? [];
  for (const rule of rules) {
    // A rule for an endpoint's own address is about packets of the endpoint to itself, which `probesOf` sends anyway.
    if (!isOfEndpoint(rule, rules)) collectClients(chains, rule, into, visited);
  }
}

/** True for the rule in a chain of kube-proxy that matches the chain's endpoint as a client. */
function isOfEndpoint({ matches }: Rule, chain: readonly Rule[]): boolean {
  const source = matches.find((match) => match.kind === "address" && match.of === "source");
  if (source?.kind !== "address") return false;
  return chain.some(({ target }) => target.kind === "dnat" && isIn(target.address, source.cidr) && isHost(source.cidr));
}

function isHost(cidr: string): boolean {
  return !cidr.includes("/") || cidr.endsWith(cidr.includes(":") ? "/128" : "/32");
}
