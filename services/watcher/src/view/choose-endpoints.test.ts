import { dead, draining, ready, starting } from "@kpng/source/testing/build.ts";
import { describe, expect, test } from "vitest";
import { type Candidate, type ChoiceReason, chooseEndpoints, explainChoice } from "./choose-endpoints.ts";

interface Named extends Candidate {
  readonly name: string;
}

const conditions = {
  ...{ ready, draining, starting, dead },
  // publishNotReadyAddresses reports ready in every state.
  readyButTerminating: { ready: true, serving: true, terminating: true },
};

const nodes: Readonly<Record<string, string>> = { a: "here", b: "there", c: "far", d: "here" };

/**
 * Parses an endpoint. *Shape:* its name, which says its node, then its state if it is not ready, and its hints for
 * zones and nodes, e.g. `a`, `b:draining`, `c/z1/@far`.
 */
function parseEndpoint(text: string): Named {
  const [head = "", ...hints] = text.split("/");
  const [name = "", state = "ready"] = head.split(":");
  return {
    name,
    conditions: conditions[state as keyof typeof conditions],
    nodeName: nodes[name] ?? "",
    hintedZones: hints.filter((hint) => !hint.startsWith("@")),
    hintedNodes: hints.filter((hint) => hint.startsWith("@")).map((hint) => hint.slice(1)),
  };
}

/**
 * The needed sets, the zone of the node "here", and the endpoints; then the endpoints in the sets Cluster and Local, or
 * what happens to packets without any.
 */
const rows: readonly (readonly [rule: string, given: string, chosen: string])[] = [
  ["no endpoint that neither is ready nor serves", "CL: a:dead b:starting", "rejected"],
  ["an endpoint that is ready and terminating", "CL: a:readyButTerminating b:draining", "C a, L a"],
  [
    "zone hints: the hinted endpoints if only an endpoint that is not ready has no hint",
    "C in z1: a/z1 b/z2 c:starting",
    "C a",
  ],
  [
    "zone hints: all endpoints if the only one with a hint for the zone is not ready",
    "C in z2: a/z1 b:starting/z2",
    "C a",
  ],
  ["zone hints: all endpoints on a node without a zone", "C: a/z1 b/z2", "C a b"],
  ['zone hints: on a node without a zone, the endpoints whose hints name zone ""', "C: a/ b/z2", "C a"],
  ["draining endpoints, whatever their hints", "C in z1: a:draining/z1 b:draining/z2", "C a b"],
  ["node hints: node hints before zone hints", "C in z1: a/z1/@here b/z1/@there", "C a"],
  ["node hints: endpoints by zone hints if no hint names the node", "C in z1: b/z1/@there c/z2/@far", "C b"],
  [
    "node hints: endpoints by zone hints if one endpoint has no node hint",
    "C in z1: a/z1/@here b/z1 c/z2/@far",
    "C a b",
  ],
  ["node hints: an endpoint on another node whose hint names this node", "C: a/@there b/@here", "C b"],
  ["none for a set that is not needed, and hasEndpoints is set", "none: a b", "dropped"],
];

describe("chooseEndpoints chooses", () => {
  test.each(rows)("%s", (_, given, chosen) => {
    const [, sets = "", zone = "", list = ""] = /^(\w+)(?: in (\w+))?: (.*)$/.exec(given) ?? [];
    const endpoints = list.split(" ").filter(Boolean).map(parseEndpoint);
    const needed = { cluster: sets.includes("C"), local: sets.includes("L") };
    const { uses, hasEndpoints } = chooseEndpoints(endpoints, { name: "here", zone }, needed);
    const namesIn = (set: "cluster" | "local") =>
      endpoints.filter((one) => uses.get(one)?.[set]).map(({ name }) => name);
    const parts = [
      ["C", ...namesIn("cluster")],
      ["L", ...namesIn("local")],
    ].filter(({ length }) => length > 1);
    const without = hasEndpoints ? "dropped" : "rejected";
    expect(parts.map((part) => part.join(" ")).join(", ") || without).toBe(chosen);
    if (parts.length > 0) expect(hasEndpoints).toBe(true);
  });

  test("no endpoint without a node in set Local, even on a node without a name", () => {
    const endpoint = { ...parseEndpoint("a"), nodeName: "" };
    const { uses } = chooseEndpoints([endpoint], { name: "", zone: "" }, { cluster: true, local: true });
    expect([...uses.values()]).toEqual([{ cluster: true, local: false }]);
  });
});

const node = { name: "here", zone: "z1" };

/** The reason for the first of the endpoints in a set; by default, both sets are needed. */
test.each<[reason: ChoiceReason, set: "cluster" | "local", list: string, needed?: string]>([
  ["ready", "cluster", "b"],
  ["ready", "local", "a"],
  ["hinted-to-node", "cluster", "b/@here"],
  ["hinted-to-zone", "cluster", "b/z1"],
  ["last-resort", "cluster", "b:draining"],
  ["last-resort", "local", "a:draining b"],
  ["set-not-needed", "local", "a", "cluster"],
  ["not-ready", "cluster", "a:starting"],
  ["not-ready", "local", "b:starting"],
  ["terminated", "cluster", "a:dead"],
  ["not-on-node", "local", "b"],
  ["terminating", "cluster", "a:draining b"],
  ["hinted-to-other-nodes", "cluster", "b/@there a/@here"],
  ["hinted-to-other-zones", "cluster", "b/z2 a/z1"],
])("%s in set %s: %s", (reason, set, list, needed) => {
  const endpoints = list.split(" ").map(parseEndpoint);
  const sets = { cluster: true, local: needed !== "cluster" };
  const choice = chooseEndpoints(endpoints, node, sets);
  expect(explainChoice(endpoints[0] as Named, set, choice, node)).toBe(reason);
});
