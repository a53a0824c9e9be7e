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

const reasons: readonly {
  readonly reason: ChoiceReason;
  readonly set: "cluster" | "local";
  /** The first one is explained. */
  readonly endpoints: string;
  readonly needed?: string;
}[] = [
  { reason: "ready", set: "cluster", endpoints: "b" },
  { reason: "ready", set: "local", endpoints: "a" },
  { reason: "hinted-to-node", set: "cluster", endpoints: "b/@here" },
  { reason: "hinted-to-zone", set: "cluster", endpoints: "b/z1" },
  { reason: "last-resort", set: "cluster", endpoints: "b:draining" },
  { reason: "last-resort", set: "local", endpoints: "a:draining b" },
  { reason: "set-not-needed", set: "local", endpoints: "a", needed: "cluster" },
  { reason: "not-ready", set: "cluster", endpoints: "a:starting" },
  { reason: "not-ready", set: "local", endpoints: "b:starting" },
  { reason: "terminated", set: "cluster", endpoints: "a:dead" },
  { reason: "not-on-node", set: "local", endpoints: "b" },
  { reason: "terminating", set: "cluster", endpoints: "a:draining b" },
  { reason: "hinted-to-other-nodes", set: "cluster", endpoints: "b/@there a/@here" },
  { reason: "hinted-to-other-zones", set: "cluster", endpoints: "b/z2 a/z1" },
];

test.each(reasons)("$reason in set $set: $endpoints", ({ reason, set, endpoints: list, needed }) => {
  const endpoints = list.split(" ").map(parseEndpoint);
  const sets = { cluster: needed !== "local", local: needed !== "cluster" };
  const choice = chooseEndpoints(endpoints, node, sets);
  expect(explainChoice(endpoints[0] as Named, set, choice, node)).toBe(reason);
});
