import { describe, expect, test } from "vitest";
import type { KubeObject } from "../../cluster/api-client.ts";
import { type Binaries, findBinaries } from "../../cluster/binaries.ts";
import type { GeneratedState } from "./generate-state.ts";
import type { Answers } from "./kube-proxy-answers.ts";
import { askAll } from "./questions.ts";

/** Result of the comparison on one node. */
export interface Comparison {
  /** Number of questions by kind of answer. */
  readonly counts: Readonly<Record<"endpoints" | "REJECT" | "DROP" | "PASS", number>>;
  /** By namespace: each question with different answers, and both answers. */
  readonly differences: ReadonlyMap<string, readonly string[]>;
}

export interface Sides {
  readonly kubeProxy: Answers;
  readonly ours: Answers;
}

/** Asks both sides all questions about the Services of the API server, and compares their answers and frontends. */
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

/** Programs and namespaces that the tests need. */
export interface PeerMachine {
  readonly paths: Extract<Binaries, { kind: "found" }>["paths"];
}

/**
 * Describes tests against the real kube-proxy in network namespaces. Where they cannot run, a skipped test has the
 * reason; in CI it fails.
 */
export async function describePeer(name: string, tests: (machine: PeerMachine) => void): Promise<void> {
  const binaries = await findBinaries(["etcd", "kube-apiserver", "kube-proxy"]);
  // kube-proxy sends all rules in one message, whose size is limited for other users to some 900 rules.
  const reason =
    process.getuid?.() === 0 ? (binaries.kind === "missing" ? binaries.reason : undefined) : "root is required";
  if (binaries.kind === "found" && reason === undefined) describe(name, () => tests({ paths: binaries.paths }));
  else test.skipIf(process.env.CI !== "true")(`${name} (skipped: ${reason})`, () => expect.fail(reason));
}
