import { expect, test } from "vitest";
import type { ChainId } from "../render/rule.ts";
import { diffJumps, listDifferences, type RulesetChange, splitChange, type TableChange } from "./diff-chains.ts";

const jumpRows = [
  { name: "jumps in our order stay as they are", installed: ["-j A", "-j B"], lines: [] },
  {
    name: "missing jumps are inserted at the beginning, in our order",
    installed: [],
    lines: ["-I INPUT 1 -j B", "-I INPUT 1 -j A"],
  },
  {
    name: "if one jump is missing, all are replaced",
    installed: ["-j B"],
    lines: ["-D INPUT -j B", "-I INPUT 1 -j B", "-I INPUT 1 -j A"],
  },
  {
    name: "jumps in the wrong order, or twice, are replaced",
    installed: ["-j B", "-j A", "-j A"],
    lines: ["-D INPUT -j B", "-D INPUT -j A", "-D INPUT -j A", "-I INPUT 1 -j B", "-I INPUT 1 -j A"],
  },
];
test.each(jumpRows)("$name", ({ installed, lines }) => {
  const desired = new Map<ChainId, readonly string[]>([["filter INPUT", ["-j A", "-j B"]]]);
  const held = new Map<ChainId, readonly string[]>([["filter INPUT", installed]]);
  expect(diffJumps(held, desired)).toEqual({ filter: lines, nat: [] });
});

const table = (...chains: readonly string[]): TableChange => ({
  puts: chains.map((chain) => ({ chain: `P-${chain}`, body: "" })),
  deletes: ["P-OLD"],
  jumps: ["-I OUTPUT 1 -j P-SERVICES"],
});
const change: RulesetChange = {
  filter: table("FORWARD"),
  nat: table("SERVICES", "FW-1", "EXT-1", "SVC-1", "SVC-2", "SVL-1", "MARK-MASQ", "IP-1"),
};
const none = new Map<ChainId, string>();

function shown(pieces: readonly RulesetChange[]): readonly (readonly string[])[] {
  return pieces.map(({ nat }) => nat.puts.map(({ chain }) => chain));
}

test("new chains of Services come first, each after the chains that it jumps to, and all else in the last transaction", () => {
  const pieces = splitChange(change, none, "P-", 2);
  expect(shown(pieces)).toEqual([
    ["P-MARK-MASQ", "P-SVC-1"],
    ["P-SVC-2", "P-SVL-1"],
    ["P-EXT-1", "P-FW-1"],
    ["P-SERVICES", "P-IP-1"],
  ]);
  const [first, last] = [pieces[0], pieces.at(-1)];
  expect(first?.filter.puts.length).toBe(0);
  expect([...(first?.nat.jumps ?? []), ...(first?.nat.deletes ?? [])]).toEqual([]);
  expect(last?.filter).toBe(change.filter);
  expect([last?.nat.jumps, last?.nat.deletes]).toEqual([change.nat.jumps, change.nat.deletes]);
});

test("an installed chain is rewritten in the last transaction, because packets traverse it", () => {
  const installed = new Map<ChainId, string>([["nat P-SVC-1", "-A P-SVC-1 -j ACCEPT\n"]]);
  expect(shown(splitChange(change, installed, "P-", 2)).at(-1)).toEqual(["P-SERVICES", "P-SVC-1", "P-IP-1"]);
});

test("a change with few new chains is one transaction", () => {
  expect(splitChange(change, none, "P-", 6)).toEqual([change]);
});

const noChange = { puts: [], deletes: [], jumps: [] };
const installed = new Map<ChainId, string>([
  ["nat OLD", "-A OLD -j RETURN\n"],
  ["nat SVC", "-A SVC -s 10.0.0.1/32 -p tcp -j A\n-A SVC -j B\n-A SVC -j B\n"],
]);
const list = (nat: Partial<RulesetChange["nat"]>) =>
  listDifferences({ filter: noChange, nat: { ...noChange, ...nat } }, installed).map(
    ({ fields, missing, unwanted }) => ({ ...fields, missing, unwanted }),
  );

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
