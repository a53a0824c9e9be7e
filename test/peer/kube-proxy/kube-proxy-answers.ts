import type { Family } from "@kpng/model/address.ts";
import type { SavedRules } from "./kube-proxy.ts";
import { describeFate, destination, type Question } from "./questions.ts";
import { type Chains, parseRules } from "./rules.ts";
import { trace } from "./trace.ts";

/** What a node does with packets. */
export interface Answers {
  /** See `describeFate`. */
  answer(question: Question): string;
  /** *Shape:* family, destination or "node", protocol, port: whatever the node has rules for. Sorted. */
  readonly frontends: readonly string[];
  /** *Shape:* family, port: the ports that are opened for a load balancer's health check. Sorted. */
  readonly healthCheckPorts: readonly string[];
}

/** What the rules of kube-proxy do. */
export function kubeProxyAnswers(saved: SavedRules, nodeName: string): Answers {
  const chains: Readonly<Record<Family, Chains>> = { v4: parseRules(saved.v4), v6: parseRules(saved.v6) };
  return {
    answer(question) {
      const { family, from, client, to, protocol, port } = question;
      const packet = { from, isFromNode: client === "node", isToNode: to === "node", protocol, port };
      const fate = trace(chains[family], { ...packet, to: destination(question, nodeName) });
      if (fate.verdict !== "DNAT") return fate.verdict;
      const [seconds, ...others] = new Set(fate.affinitySeconds);
      const isForAll = seconds === undefined || fate.affinitySeconds.length === fate.endpoints.length;
      if (others.length > 0 || !isForAll) throw new Error(`${question.key}: affinity differs between endpoints`);
      return describeFate(fate.endpoints, seconds);
    },
    frontends: bothFamilies((family) => frontendsOf(chains[family])),
    healthCheckPorts: bothFamilies((family) =>
      (chains[family].get("filter/KUBE-NODEPORTS") ?? []).flatMap(({ matches }) =>
        matches.flatMap(({ name, value }) => (name === "--dport" ? [value] : [])),
      ),
    ),
  };
}

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

function frontendsOf(chains: Chains): readonly string[] {
  return frontendChains.flatMap((chain) =>
    (chains.get(chain) ?? []).flatMap(({ matches, onlyTo }) => {
      const value = (wanted: string) => matches.find(({ name }) => name === wanted)?.value;
      const port = value("--dport");
      // The jump to the node ports names none.
      return port === undefined ? [] : [`${onlyTo ?? "node"} ${value("-p")} ${port}`];
    }),
  );
}
