import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import type { RuleChange } from "@kpng/backend-kit/proxy/rule-set.ts";
import type { Family } from "@kpng/model/address.ts";
import { NftTable } from "../commit/nft-table.ts";
import { NetlinkSocket } from "../netlink/netlink-socket.ts";
import { NftablesConnection } from "../netlink/nftables-connection.ts";
import { readOwnObjects } from "../read/read-table.ts";
import { ipOf, renderPicks } from "../render/skeleton.ts";
import { ChangingPlan } from "./plans.ts";

// Changes a table in the network namespace of this process, and fails if a step does not do what it must:
// `drive-table.ts FAMILY`. nft changes the rules as other programs do.

const family: Family = process.argv[2] === "v6" ? "v6" : "v4";
const ip = ipOf(family);
const connection = new NftablesConnection();
const options = { family, table: "kpng", masqueradeBit: 14, connection, maxClients: 1_000 } as const;
const make = () => new NftTable(options);
const sizes = ({ fields, differences }: RuleChange) => ({
  elements: Number(fields.puts) + Number(fields.deletes),
  chains: differences().flatMap((one) => one.fields.chain ?? []),
});
const nft = (...args: readonly string[]): string => {
  const { stdout, stderr, status } = spawnSync("nft", args, { encoding: "utf8" });
  if (status !== 0) throw new Error(stderr);
  return stdout;
};
/** Elements of a set as nft prints them, in order. */
const elementsOf = (set: string): readonly string[] =>
  (/elements = \{([^}]*)\}/.exec(nft("list", "map", ip, "kpng", set))?.[1] ?? "")
    .split(",")
    .map((text) => text.trim())
    .filter((text) => text !== "")
    .sort();
const failureOf = async (work: Promise<unknown>): Promise<string> =>
  await work.then(
    () => "no failure",
    (error: unknown) => (error instanceof Error ? error.message : String(error)),
  );
const stages = { committing: () => undefined };
/** Returns a function that counts the datagrams sent to the kernel since now. */
function countSent(): () => number {
  let count = 0;
  const send = NetlinkSocket.prototype.send;
  NetlinkSocket.prototype.send = function (bytes) {
    count += 1;
    send.call(this, bytes);
  };
  return () => count;
}

let chainCommits = 0;
const commit = connection.commit.bind(connection);
connection.commit = async (id, steps) => {
  if (steps.some(({ kind }) => kind === "chain")) chainCommits += 1;
  await commit(id, steps);
};

const frontends = {
  v4: ["10.96.0.2 . tcp . 443", "10.96.0.2 . tcp . 80", "10.96.0.3 . tcp . 443", "10.96.0.3 . tcp . 80"],
  v6: ["fd00:96::2 . tcp . 443", "fd00:96::2 . tcp . 80", "fd00:96::3 . tcp . 443", "fd00:96::3 . tcp . 80"],
} as const;
const [web, sticky] = ["ns/web-1", "ns/sticky-2"] as const;
const unchanged = { elements: 0, chains: [] };
const commented = /comment "ns\/web-1:p443"/;

const plan = new ChangingPlan(family);
plan.set(web, 3);
plan.set(sticky, 2);
let table = make();
const setWeb = async (endpoints: number): Promise<RuleChange> => {
  plan.set(web, endpoints);
  return await table.sync(plan, new Set([web]), stages);
};
/** Compares the table with the kernel's, and repairs it. Returns how much was wrong. */
const repair = async () => sizes(await table.repair());

await table.sync(plan, "all", stages);
// Chains for 2 and for 3 endpoints.
assert.equal(chainCommits, 1);
const installed = elementsOf("frontends");
assert.deepEqual(
  installed.map((text) => text.split(" comment ")[0]?.split(" : ")[0]),
  frontends[family],
);
assert.match(installed[0] ?? "", commented);
// A packet whose slot has just gone gets slot 0, also with the rules that --dry-run prints.
for (const rules of [nft("list", "chain", ip, "kpng", "pick_3"), renderPicks({ family, name: "kpng" }, ["pick_3"])]) {
  assert.match(rules, /mod 3 map @slots.*mod 1 map @slots/s);
}
// 2 × 3 endpoints of web, and the port of sticky without affinity.
assert.equal(elementsOf("slots").length, 8);
assert.deepEqual(sizes(await table.sync(plan, new Set([web, sticky]), stages)), unchanged);
table = make();
assert.equal(sizes(await table.sync(plan, "all", stages)).elements, 0);
// For each of two ports: the slot and its endpoint, the frontend deleted and put with the new count.
assert.deepEqual(sizes(await setWeb(2)), { elements: 6, chains: [] });
assert.deepEqual(await repair(), unchanged);

// An unchanged generation of the ruleset proves that no program has changed it, and nothing is read.
await setWeb(3);
let reads = 0;
const read = connection.readElements.bind(connection);
connection.readElements = async (...args) => {
  reads += 1;
  return await read(...args);
};
assert.deepEqual(await repair(), unchanged);
assert.equal(reads, 0);

nft("flush", "map", ip, "kpng", "frontends");
assert.deepEqual(await repair(), { elements: 4, chains: [] });
assert.match(elementsOf("frontends")[0] ?? "", commented);
// The repair was a put of elements only, after which the generation is unknown; this one reads it.
await repair();

// Our own commit after that of another program must not hide it. The first names the generation from before the other
// program's change, and is sent again without one.
nft("flush", "chain", ip, "kpng", "services");
const sent = countSent();
for (const [endpoints, datagrams] of [
  [2, 2],
  [3, 1],
  [2, 1],
] as const) {
  const before = sent();
  await setWeb(endpoints);
  assert.equal(sent() - before, datagrams);
}
assert.deepEqual(await repair(), { elements: 0, chains: ["services"] });

// A commit with rules of its own reads all rules afterwards, and must not take these for right.
nft("flush", "chain", ip, "kpng", "services");
await setWeb(5);
assert.deepEqual((await repair()).chains, ["services"]);
await setWeb(2);

// A full sync of a table that is in place puts what has changed.
plan.set(web, 3);
assert.equal(sizes(await table.sync(plan, "all", stages)).elements, 6);
assert.deepEqual(await repair(), unchanged);

// The ids of endpoint sets outlast a restart, also if all Services have affinity.
plan.set(web, 0);
await table.sync(plan, new Set([web]), stages);
table = make();
assert.equal(sizes(await table.sync(plan, "all", stages)).elements, 0);
await setWeb(2);

// The same expressions with another number.
nft("flush", "chain", ip, "kpng", "mark_masquerade");
nft("add", "rule", ip, "kpng", "mark_masquerade", "meta mark set meta mark or 0x8000");
assert.deepEqual(await repair(), { elements: 0, chains: ["mark_masquerade"] });

const ranges = /ranges_[0-9a-f]{16}/.exec(nft("list", "sets", ip))?.[0] ?? "";
nft("add", "element", ip, "kpng", ranges, `{ ${family === "v6" ? "2001:db9::/32" : "203.0.113.0/24"} }`);
assert.deepEqual(await repair(), { elements: 0, chains: [ranges] });
const own = family === "v6" ? "2001:db8::/32" : "192.0.2.0/24";
assert.ok(nft("list", "set", ip, "kpng", ranges).includes(`elements = { ${own} }`));

const id = { family, name: "kpng" } as const;
nft("add", "table", ip, "kpng", "{ flags dormant; }");
assert.ok((await repair()).chains.includes("nat_prerouting"));
nft("add", "chain", ip, "kpng", "filter_forward", "{ policy drop; }");
assert.deepEqual(await repair(), { elements: 0, chains: ["filter_forward"] });
assert.doesNotMatch(nft("list", "table", ip, "kpng"), /dormant|policy drop/);

// A base chain that is deleted, or that is added again with the same rule at another hook, takes no packets.
assert.ok(await table.isInstalled());
for (const again of [
  [],
  [
    `add chain ${ip} kpng nat_output { type nat hook prerouting priority -95; }`,
    `add rule ${ip} kpng nat_output jump services`,
  ],
]) {
  for (const command of [`flush chain ${ip} kpng nat_output`, `delete chain ${ip} kpng nat_output`, ...again])
    nft(command);
  assert.equal(await table.isInstalled(), false);
  assert.deepEqual(await repair(), { elements: 0, chains: ["nat_output"] });
  assert.ok(await table.isInstalled());
}

// A chain that another program flushes immediately before the rules are read for the given time is not taken for right.
assert.ok(table.isKnown);
const readChains = connection.readChains.bind(connection);
const flushBeforeRead = (chain: string, at: number): void => {
  let count = 0;
  connection.readChains = async (id) => {
    if (++count === at) nft("flush", "chain", ip, "kpng", chain);
    return await readChains(id);
  };
};
const expectFlushed = async (chain: string): Promise<void> => {
  assert.equal(table.isKnown, false);
  assert.deepEqual((await repair()).chains, [chain]);
  assert.ok(table.isKnown);
};
// A chain with several rules, and one with a single rule.
for (const chain of ["check", "pick"]) {
  table = make();
  flushBeforeRead(chain, 2);
  await table.sync(plan, "all", stages);
  await expectFlushed(chain);
}
plan.set("ns/sticky-9", 4);
flushBeforeRead("sticky_pick_4", 1);
await table.sync(plan, new Set(["ns/sticky-9"] as const), stages);
await expectFlushed("sticky_pick_4");
connection.readChains = readChains;
plan.set("ns/sticky-9", 0);
await table.sync(plan, new Set(["ns/sticky-9"] as const), stages);

// Changes nothing, so the kernel does not count it; the next change takes the number that it would have had.
const known = await connection.generation();
const present = [...(await connection.readElements(id, "frontends"))]
  .slice(0, 1)
  .map(([key, value]) => ({ key, value }));
await connection.commit(id, [{ set: "frontends", kind: "put", data: "value", elements: present }]);
nft("add", "counter", ip, "kpng", "seven", "{ packets 7 bytes 700 }");
assert.notEqual(await connection.generation(), known);

nft("delete", "table", ip, "kpng");
assert.ok((await repair()).elements > 10);
const element = { key: "\0\0\0\0", value: "absent" };
const refusal = await failureOf(
  connection.commit(id, [{ set: "picks", kind: "put", data: "goto", elements: [element] }]),
);
assert.match(refusal, /put in set picks: ENOENT/);
assert.equal(elementsOf("frontends").length, 4);

// Another number of endpoints, so that a chain for it is added to a table that is in use.
plan.set(web, 7);
// The longest name of a Service; with that of a port, a comment would be longer than nft accepts.
const long = `${"n".repeat(63)}/${"s".repeat(61)}-4` as const;
plan.set(long, 1);
await table.sync(plan, new Set([web, long]), stages);
const listing = nft("--stateless", "list", "table", ip, "kpng");
assert.ok(listing.includes(`comment "${long}"`));

// Rules and elements of another program inside our table, which lead to a chain that is to go.
const stickyChain = /sticky_[0-9a-f]{16}/.exec(listing)?.[0] ?? "";
const address = family === "v6" ? "ipv6_addr" : "ipv4_addr";
nft("add", "rule", ip, "kpng", stickyChain, "counter");
nft("add", "chain", ip, "kpng", "foreign");
nft("add", "rule", ip, "kpng", "foreign", "jump", stickyChain);
nft("add", "rule", ip, "kpng", "nat_prerouting", "jump", "foreign");
nft("add", "map", ip, "kpng", "foreign_map", `{ type ${address} : verdict; }`);
nft("add", "element", ip, "kpng", "foreign_map", `{ ${family === "v6" ? "::9" : "192.0.2.9"} : jump ${stickyChain} }`);
for (const key of [web, sticky, long]) plan.set(key, 0);
const blocked = await failureOf(table.sync(plan, new Set([web, sticky, long]), stages));
assert.match(blocked, /^\[COMMIT_REJECTED\] .*busy/s);
// The transaction that is repeated without the deletion has emptied it.
assert.doesNotMatch(nft("list", "chain", ip, "kpng", stickyChain), /counter|jump/);
await table.sync(plan, "all", stages);
assert.doesNotMatch(
  nft("list", "table", ip, "kpng"),
  /foreign|(?:clients|ranges|sticky)_[0-9a-f]{16}|\d+\.\d+\.\d+\.\d+ \. tcp/,
);

nft("add", "table", ip, "other");
const foreign = await failureOf(readOwnObjects(connection, { family, name: "other" }));
assert.match(foreign, /exists without the chain kpng_layout_1/);
connection.close();
// It may get the descriptor of the closed one.
const other = new NftablesConnection();
assert.match(await failureOf(connection.generation()), /^\[NETLINK_UNAVAILABLE\] .*closed/);
other.close();
