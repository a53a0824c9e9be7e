import { readProxySettings } from "@kpng/backend-kit/proxy/proxy-settings.ts";
import type { Family } from "@kpng/model/address.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import { planNode } from "@kpng/service-plan/plan-node.ts";
import { indexPlans, outcomes, type PacketOutcome } from "@kpng/service-plan/testing/outcomes.ts";
import { plansOf } from "@kpng/service-plan/testing/random-views.ts";
import type { KubeObject } from "../../cluster/api-client.ts";
import { parseRuleset } from "../../packet-tracer/parse-ruleset.ts";
import { trace } from "../../packet-tracer/trace.ts";
import type { GeneratedState } from "./generate-state.ts";
import type { SavedRules } from "./kube-proxy.ts";
import { askAll, destination, type Question } from "./questions.ts";
import { nodeAddress, podCidrs, tracedNode } from "./world.ts";

/** Returns every possible outcome of a question's packet, as one text. */
type Answer = (question: Question) => string;

/** Answers of kube-proxy's rules in iptables mode, by tracing a packet through the rules of all kernel hooks. */
export function rulesAnswer(saved: SavedRules, nodeName: string): Answer {
  const rulesets = { v4: parseRuleset(saved.v4), v6: parseRuleset(saved.v6) };
  const nodes = { v4: tracedNode(nodeName, "v4"), v6: tracedNode(nodeName, "v6") };
  return (question) => {
    const { family } = question;
    return describe(trace(rulesets[family], nodes[family], packetOf(question, nodeName)));
  };
}

/** Answers of the plan that our backends make from a view. */
export function planAnswer(view: NodeView, nodeName: string): Answer {
  const clusterCidr = Object.values(podCidrs);
  const settings = readProxySettings({ detectLocalMode: "ClusterCIDR", clusterCidr, nodeportAddresses: [] }, true);
  const localAddresses = {
    v4: ["127.0.0.1", nodeAddress(nodeName, "v4")],
    v6: ["::1", nodeAddress(nodeName, "v6")],
  };
  const plannedOf = (family: Family) => {
    const node = planNode(settings, family, { node: view.node, localAddresses });
    return indexPlans(node, tracedNode(nodeName, family).localCIDRs, plansOf({ view }, node));
  };
  const planned = { v4: plannedOf("v4"), v6: plannedOf("v6") };
  return (question) => describe(outcomes(planned[question.family], packetOf(question, nodeName)));
}

function packetOf(question: Question, nodeName: string) {
  const { from: source, client, protocol, port } = question;
  const inInterface = client === "node" ? undefined : "eth0";
  return { protocol, source, destination: destination(question, nodeName), port, inInterface };
}

/** *Shape:* `to 10.1.0.1:80, to 10.1.0.2:80 masqueraded`, `refused`, `dropped`, `untouched`. */
function describe(all: readonly PacketOutcome[]): string {
  const texts = all.map((outcome) => {
    if (outcome.kind !== "to") return outcome.kind;
    const { address, port, isMasqueraded, affinitySeconds } = outcome;
    return `to ${address}:${port}${isMasqueraded ? " masqueraded" : ""}${affinitySeconds ? `, for ${affinitySeconds} s` : ""}`;
  });
  return [...new Set(texts)].sort().join("; ");
}

/** Result of the comparison on one node. */
export interface Comparison {
  /** Number of questions by kind of answer. */
  readonly counts: Readonly<Record<"to" | "refused" | "dropped" | "untouched", number>>;
  /** By namespace: each question with different answers, and both answers. */
  readonly differences: ReadonlyMap<string, readonly string[]>;
}

/** Asks both sides all questions about the Services of the API server, and compares their answers. */
export function compare(theirs: Answer, ours: Answer, services: readonly KubeObject[], nodeName: string): Comparison {
  const counts = { to: 0, refused: 0, dropped: 0, untouched: 0 };
  const differences = new Map<string, string[]>();
  for (const service of services) {
    for (const question of askAll(service, nodeName)) {
      const [expected, found] = [theirs(question), ours(question)];
      counts[expected.split(/[ ;]/)[0] as keyof typeof counts] += 1;
      if (expected === found) continue;
      const { namespace = "" } = service.metadata;
      const text = `${nodeName}: ${question.key}\n  kube-proxy: ${expected}\n  our plan:   ${found}`;
      differences.set(namespace, [...(differences.get(namespace) ?? []), text]);
    }
  }
  return { counts, differences };
}

/** Describes differences together with the objects that cause them. */
export function describeDifferences(
  differences: Comparison["differences"],
  seed: number,
  states: readonly GeneratedState[],
): string {
  return [...differences]
    .slice(0, 5)
    .map(([namespace, texts]) => {
      const state = states.find((other) => other.namespace === namespace);
      const objects = state === undefined ? [] : [state.service.object, state.service.status, ...slicesOf(state)];
      const shown = objects.map((object) => JSON.stringify(object));
      return [`seed ${seed}, state ${state?.number ?? "none"}:`, ...texts.slice(0, 8), ...shown].join("\n");
    })
    .join("\n\n");
}

/** Returns the slices of the one Service that is served. */
function slicesOf({ slices }: GeneratedState): readonly KubeObject[] {
  return slices.filter(({ metadata }) => metadata.labels?.["kubernetes.io/service-name"] === "web");
}
