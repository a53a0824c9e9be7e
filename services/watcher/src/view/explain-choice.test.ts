import { describe, expect, test } from "vitest";
import { type Candidate, type ChoiceReason, chooseEndpoints, explainChoice } from "./choose-endpoints.ts";

type Set = "cluster" | "local";
const yes: readonly ChoiceReason[] = ["ready", "hinted-to-node", "hinted-to-zone", "last-resort"];
const node = { name: "here", zone: "z1" };

const conditions = {
  ready: { ready: true, serving: true, terminating: false },
  draining: { ready: false, serving: true, terminating: true },
  starting: { ready: false, serving: false, terminating: false },
  dead: { ready: false, serving: false, terminating: true },
} as const;

function candidate(
  state: keyof typeof conditions,
  nodeName: string,
  hintedZones: readonly string[] = [],
  hintedNodes: readonly string[] = [],
): Candidate {
  return { conditions: conditions[state], nodeName, hintedZones, hintedNodes };
}

interface Row {
  readonly reason: ChoiceReason;
  readonly set: Set;
  readonly of: Candidate;
  readonly beside?: readonly Candidate[];
  readonly needed?: Set;
}

const rows: readonly Row[] = [
  { reason: "ready", set: "cluster", of: candidate("ready", "there") },
  { reason: "ready", set: "local", of: candidate("ready", "here") },
  { reason: "hinted-to-node", set: "cluster", of: candidate("ready", "there", [], ["here"]) },
  { reason: "hinted-to-zone", set: "cluster", of: candidate("ready", "there", ["z1"]) },
  { reason: "last-resort", set: "cluster", of: candidate("draining", "there") },
  { reason: "last-resort", set: "local", of: candidate("draining", "here"), beside: [candidate("ready", "there")] },
  { reason: "set-not-needed", set: "local", of: candidate("ready", "here"), needed: "cluster" },
  { reason: "not-ready", set: "cluster", of: candidate("starting", "here") },
  { reason: "not-ready", set: "local", of: candidate("starting", "there") },
  { reason: "terminated", set: "cluster", of: candidate("dead", "here") },
  { reason: "not-on-node", set: "local", of: candidate("ready", "there") },
  { reason: "terminating", set: "cluster", of: candidate("draining", "here"), beside: [candidate("ready", "there")] },
  {
    reason: "hinted-to-other-nodes",
    set: "cluster",
    of: candidate("ready", "there", [], ["there"]),
    beside: [candidate("ready", "here", [], ["here"])],
  },
  {
    reason: "hinted-to-other-zones",
    set: "cluster",
    of: candidate("ready", "there", ["z2"]),
    beside: [candidate("ready", "here", ["z1"])],
  },
];

test.each(rows)("$reason in set $set", ({ reason, set, of, beside = [], needed }) => {
  const sets = { cluster: needed !== "local", local: needed !== "cluster" };
  const choice = chooseEndpoints([of, ...beside], node, sets);
  expect(explainChoice(of, set, choice, node)).toBe(reason);
});

describe("for all combinations of two endpoints", () => {
  const states = Object.keys(conditions) as (keyof typeof conditions)[];
  const hints: readonly (readonly [string[], string[]])[] = [
    [[], []],
    [["z1"], []],
    [["z2"], []],
    [["z1"], ["here"]],
    [[], ["there"]],
  ];
  const all = states.flatMap((state) =>
    ["here", "there"].flatMap((at) => hints.map(([zones, nodes]) => candidate(state, at, zones, nodes))),
  );

  test("the reason belongs to the set exactly if the endpoint is in the set", () => {
    let checked = 0;
    for (const a of all) {
      for (const b of all) {
        for (const needed of [
          { cluster: true, local: true },
          { cluster: true, local: false },
          { cluster: false, local: true },
        ]) {
          const other = { ...b };
          const choice = chooseEndpoints([a, other], node, needed);
          for (const one of [a, other]) {
            for (const set of ["cluster", "local"] as const) {
              const reason = explainChoice(one, set, choice, node);
              expect(yes.includes(reason), JSON.stringify({ one, a, other, needed, set, reason })).toBe(
                choice.uses.get(one)?.[set] ?? false,
              );
              checked += 1;
            }
          }
        }
      }
    }
    expect(checked).toBe(all.length ** 2 * 12);
  });
});
