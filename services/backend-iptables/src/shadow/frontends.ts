import { isIn } from "@kpng/model/cidr.ts";
import { onlyDestination, onlyPort } from "@kpng/packet-tracer/candidates.ts";
import type { Rule, Ruleset } from "@kpng/packet-tracer/rule.ts";

/** An address and port that rules are about. */
export interface Frontend {
  /** "tcp", "udp" or "sctp". */
  readonly protocol: string;
  /** Undefined for the node's own addresses: a node port, or one for health checks. */
  readonly address: string | undefined;
  readonly port: number;
  /** *Shape:* `namespace/name:port`, from the rules' comments; "" if they have none. */
  readonly servicePort: string;
  /** Clients that the rules behind it tell from others: CIDRs, single addresses among them. */
  readonly sources: ReadonlySet<string>;
  /** Interfaces that they tell from others, as rules write them: `cbr0`, `veth+`. */
  readonly interfaces: ReadonlySet<string>;
}

/** *Shape:* `tcp 10.96.0.10 80`, `tcp node 30080`. */
export type FrontendKey = string;

/**
 * Returns the frontends that a ruleset has a rule for, whatever that does.
 *
 * Pure; O(rules). A rule counts if it names a protocol and one port; what it is for is told by the comments that kube-proxy
 * and kpng-iptables both write.
 */
export function frontendsOf(ruleset: Ruleset): ReadonlyMap<FrontendKey, Frontend> {
  const found = new Map<FrontendKey, Frontend & { readonly sources: Set<string>; readonly interfaces: Set<string> }>();
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

export function frontendKey({ protocol, address, port }: Pick<Frontend, "protocol" | "address" | "port">): FrontendKey {
  return `${protocol} ${address ?? "node"} ${port}`;
}

function placeOf({ matches }: Rule): Pick<Frontend, "protocol" | "address" | "port"> | undefined {
  const port = onlyPort(matches);
  const protocol = matches.find((match) => match.kind === "protocol" && !match.isNot);
  if (port === undefined || protocol?.kind !== "protocol") return undefined;
  return { protocol: protocol.protocol, address: onlyDestination(matches), port };
}

/** The comment's first word, if it is a Service's name; see `render/rule.ts` and kube-proxy's rules. */
function servicePortOf({ text }: Rule): string {
  return /--comment "?(?:masquerade traffic for |pod traffic for )?([^\s"/]+\/[^\s"]+)/.exec(text)?.[1] ?? "";
}

/** Chains that all Services share and that tell no clients apart. */
const isShared = (chain: string): boolean => chain.endsWith("-MARK-MASQ");

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
    // What an endpoint's own address is told apart for is the way to itself; see `probes.ts`.
    if (!isOfEndpoint(rule, rules)) collectClients(chains, rule, into, visited);
  }
}

/** True for the rule of a chain of kube-proxy's that is for its endpoint as a client. */
function isOfEndpoint({ matches }: Rule, chain: readonly Rule[]): boolean {
  const source = matches.find((match) => match.kind === "address" && match.of === "source");
  if (source?.kind !== "address") return false;
  return chain.some(({ target }) => target.kind === "dnat" && isIn(target.address, source.cidr) && isHost(source.cidr));
}

function isHost(cidr: string): boolean {
  return !cidr.includes("/") || cidr.endsWith(cidr.includes(":") ? "/128" : "/32");
}
