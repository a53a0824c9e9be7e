import type { Family } from "@kpng/model/address.ts";
import type { PacketOutcome } from "@kpng/service-plan/outcomes.ts";
import { parseRuleset, type Rule, type Ruleset } from "../../packet-tracer/parse-ruleset.ts";
import { type TracedNode, trace } from "../../packet-tracer/trace.ts";
import { onlyDestination, onlyPort } from "../../packet-tracer/walk.ts";
import type { SavedRules } from "./kube-proxy.ts";
import { describeFate, destination, type Question } from "./questions.ts";
import { tracedNode } from "./world.ts";

/** Treatment of packets by a node. */
export interface Answers {
  /** See `describeFate`. */
  answer(question: Question): string;
  /** All destinations with rules. *Shape:* family, destination or "node", protocol, port. Sorted. */
  readonly frontends: readonly string[];
  /** Ports opened for health checks of load balancers. *Shape:* family, port. Sorted. */
  readonly healthCheckPorts: readonly string[];
}

/**
 * Answers of kube-proxy's rules in iptables mode, by tracing a packet through the rules of all kernel hooks.
 */
export function kubeProxyAnswers(saved: SavedRules, nodeName: string): Answers {
  const rulesets: Readonly<Record<Family, Ruleset>> = { v4: parseRuleset(saved.v4), v6: parseRuleset(saved.v6) };
  const nodes: Readonly<Record<Family, TracedNode>> = {
    v4: tracedNode(nodeName, "v4"),
    v6: tracedNode(nodeName, "v6"),
  };
  return {
    answer(question) {
      const { key, family, from: source, client, protocol, port } = question;
      const inInterface = client === "node" ? undefined : "eth0";
      const packet = { protocol, source, destination: destination(question, nodeName), port, inInterface };
      return describeOutcomes(trace(rulesets[family], nodes[family], packet), key);
    },
    frontends: bothFamilies((family) => frontendsOf(rulesets[family])),
    healthCheckPorts: bothFamilies((family) =>
      rulesOf(rulesets[family], "filter/KUBE-NODEPORTS").flatMap(({ matches }) => {
        const port = onlyPort(matches);
        return port === undefined ? [] : [String(port)];
      }),
    ),
  };
}

/** Describes the outcomes of a packet. Errors: they differ in more than the endpoint. */
function describeOutcomes(outcomes: readonly PacketOutcome[], key: string): string {
  const reached = outcomes.flatMap((outcome) => (outcome.kind === "to" ? outcome : []));
  if (reached.length === 0) {
    const [verdict, ...others] = new Set(outcomes.map(({ kind }) => verdicts[kind]));
    if (verdict === undefined || others.length > 0) throw new Error(`${key}: ${JSON.stringify(outcomes)}`);
    return verdict;
  }
  if (reached.length < outcomes.length) throw new Error(`${key}: only some packets are forwarded`);
  const addresses = (some: typeof reached) =>
    new Set(some.map(({ address, port }) => `${address.includes(":") ? `[${address}]` : address}:${port}`));
  const endpoints = addresses(reached);
  const remembered = reached.filter(({ affinitySeconds }) => affinitySeconds !== undefined);
  const [seconds, ...others] = new Set(remembered.map(({ affinitySeconds }) => affinitySeconds));
  const isForAll = seconds === undefined || addresses(remembered).size === endpoints.size;
  if (others.length > 0 || !isForAll) throw new Error(`${key}: affinity differs between endpoints`);
  return describeFate([...endpoints], seconds);
}

const verdicts = { refused: "REJECT", dropped: "DROP", untouched: "PASS", to: "DNAT" } as const;

function bothFamilies(list: (family: Family) => readonly string[]): readonly string[] {
  const texts = (["v4", "v6"] as const).flatMap((family) => list(family).map((text) => `${family} ${text}`));
  return [...new Set(texts)].sort();
}

const frontendChains = [
  "nat/KUBE-SERVICES",
  "nat/KUBE-NODEPORTS",
  "filter/KUBE-SERVICES",
  "filter/KUBE-EXTERNAL-SERVICES",
  "filter/KUBE-PROXY-FIREWALL",
];

function frontendsOf(ruleset: Ruleset): readonly string[] {
  return frontendChains.flatMap((chain) =>
    rulesOf(ruleset, chain).flatMap(({ matches }) => {
      const port = onlyPort(matches);
      const protocol = matches.find((match) => match.kind === "protocol");
      // The jump to the node ports names no port.
      return port === undefined ? [] : [`${onlyDestination(matches) ?? "node"} ${protocol?.protocol} ${port}`];
    }),
  );
}

/** Returns the rules of a chain; `place` is `table/chain`. */
function rulesOf(ruleset: Ruleset, place: string): readonly Rule[] {
  const [table = "", chain = ""] = place.split("/");
  return ruleset.get(table)?.get(chain) ?? [];
}
