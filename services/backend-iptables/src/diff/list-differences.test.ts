import { expect, test } from "vitest";
import type { ChainId } from "../render/rule.ts";
import type { RulesetChange } from "./diff-chains.ts";
import { listDifferences } from "./list-differences.ts";

const none = { puts: [], deletes: [], jumps: [] };
const installed = new Map<ChainId, string>([
  ["nat OLD", "-A OLD -j RETURN\n"],
  ["nat SVC", "-A SVC -s 10.0.0.1/32 -p tcp -j A\n-A SVC -j B\n-A SVC -j B\n"],
]);
const list = (nat: Partial<RulesetChange["nat"]>) =>
  listDifferences({ filter: none, nat: { ...none, ...nat } }, installed);

test("a missing and an unwanted chain are listed with their rules", () => {
  expect(list({ puts: [{ chain: "NEW", body: "-A NEW -j A\n" }], deletes: ["OLD"] })).toEqual([
    { table: "nat", chain: "NEW", kind: "missing", missing: ["-j A"], unwanted: [] },
    { table: "nat", chain: "OLD", kind: "unwanted", missing: [], unwanted: ["-j RETURN"] },
  ]);
});

test("rules are compared one by one, by their canonical text", () => {
  const body = "-A SVC -p tcp -s 10.0.0.1 -j A\n-A SVC -j B\n-A SVC -j C\n";
  expect(list({ puts: [{ chain: "SVC", body }] })).toEqual([
    { table: "nat", chain: "SVC", kind: "changed", missing: ["-j C"], unwanted: ["-j B"] },
  ]);
});

test('the same rules in another order differ by "order"', () => {
  const body = "-A SVC -j B\n-A SVC -j B\n-A SVC -s 10.0.0.1/32 -p tcp -j A\n";
  expect(list({ puts: [{ chain: "SVC", body }] })).toEqual([
    { table: "nat", chain: "SVC", kind: "order", missing: [], unwanted: [] },
  ]);
});

test("differences of jumps are listed by built-in chain", () => {
  const jumps = [
    "-D OUTPUT -j OLD",
    "-I OUTPUT 1 -j SVC",
    "-D INPUT -j A",
    "-D INPUT -j B",
    "-I INPUT 1 -j A",
    "-I INPUT 1 -j B",
  ];
  expect(list({ jumps })).toEqual([
    { table: "nat", chain: "OUTPUT", kind: "jumps", missing: ["-j SVC"], unwanted: ["-j OLD"] },
    { table: "nat", chain: "INPUT", kind: "order", missing: [], unwanted: [] },
  ]);
});
