import type { KubeObject } from "../../cluster/api-client.ts";
import type { GeneratedState } from "./generate-state.ts";
import type { Answers } from "./kube-proxy-answers.ts";
import { askAll } from "./questions.ts";

/** What the comparison on one node found. */
export interface Comparison {
  /** How many questions had each kind of answer. */
  readonly counts: Readonly<Record<"endpoints" | "REJECT" | "DROP" | "PASS", number>>;
  /** By namespace: each question that the two answer differently, with both answers. */
  readonly differences: ReadonlyMap<string, readonly string[]>;
}

export interface Sides {
  readonly kubeProxy: Answers;
  readonly ours: Answers;
}

/** Asks both sides whatever can be asked of the Services of the API server, and compares all that they have rules for. */
export function compare(sides: Sides, services: readonly KubeObject[], nodeName: string): Comparison {
  const counts = { endpoints: 0, REJECT: 0, DROP: 0, PASS: 0 };
  const differences = new Map<string, string[]>();
  const report = (namespace: string, text: string): void => {
    differences.set(namespace, [...(differences.get(namespace) ?? []), `${nodeName}: ${text}`]);
  };
  for (const service of services) {
    for (const question of askAll(service, nodeName)) {
      const theirs = sides.kubeProxy.answer(question);
      const ours = sides.ours.answer(question);
      counts[theirs === "REJECT" || theirs === "DROP" || theirs === "PASS" ? theirs : "endpoints"] += 1;
      if (theirs === ours) continue;
      report(service.metadata.namespace ?? "", `${question.key}\n  kube-proxy: ${theirs}\n  our view:   ${ours}`);
    }
  }
  for (const kind of ["frontends", "healthCheckPorts"] as const) {
    const theirs = new Set(sides.kubeProxy[kind]);
    const ours = new Set(sides.ours[kind]);
    for (const only of theirs.difference(ours)) report("", `only kube-proxy has in ${kind}: ${only}`);
    for (const only of ours.difference(theirs)) report("", `only our view has in ${kind}: ${only}`);
  }
  return { counts, differences };
}

/** A difference with the objects that it comes from, enough to see why. */
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

/** Those of the one Service that is served. */
function slicesOf({ slices }: GeneratedState): readonly KubeObject[] {
  return slices.filter(({ metadata }) => metadata.labels?.["kubernetes.io/service-name"] === "web");
}
