import { spawnSync } from "node:child_process";
import type { Family } from "@kpng/model/address.ts";
import { NftTable, type TableChange } from "../commit/nft-table.ts";
import { NetlinkSocket } from "../netlink/netlink-socket.ts";
import { NftablesConnection } from "../netlink/nftables-connection.ts";
import { readOwnObjects } from "../read/read-table.ts";
import { ipOf } from "../render/skeleton.ts";
import { ChangingPlan } from "./plans.ts";

// Changes a table in the network namespace of this process, and prints what each step did: `drive-table.ts FAMILY`.

const family: Family = process.argv[2] === "v6" ? "v6" : "v4";
const ip = ipOf(family);
const connection = new NftablesConnection();
const make = () => new NftTable({ family, table: "kpng", masqueradeBit: 14, connection, maxClients: 1_000 });
const sizes = ({ elements, chains }: TableChange) => ({
  elements: elements.reduce((sum, change) => sum + change.elements.length, 0),
  chains,
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
const nothing = (): void => undefined;
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

const plan = new ChangingPlan(family);
plan.set("ns/web-1", 3);
plan.set("ns/sticky-2", 2);
let table = make();
const loaded = sizes(await table.syncAll(plan, nothing));
const chainCommitsOfLoad = chainCommits;
const frontends = elementsOf("frontends");
const slots = elementsOf("slots").length;
const again = sizes(await table.sync(plan, new Set(["ns/web-1", "ns/sticky-2"] as const), nothing));
table = make();
const restartAgain = sizes(await table.syncAll(plan, nothing));
plan.set("ns/web-1", 2);
const shrunk = sizes(await table.sync(plan, new Set(["ns/web-1"] as const), nothing));
const noDrift = sizes(await table.repair(plan));
// No other program has changed anything since then.
plan.set("ns/web-1", 3);
await table.sync(plan, new Set(["ns/web-1"] as const), nothing);
let reads = 0;
const read = connection.readElements.bind(connection);
connection.readElements = async (...args) => {
  reads += 1;
  return await read(...args);
};
const ownChange = sizes(await table.repair(plan));
const readsAfterOwnChange = reads;
nft("flush", "map", ip, "kpng", "frontends");
const lostElements = sizes(await table.repair(plan));
const putBack = elementsOf("frontends");
// The repair was a put of elements only, after which the generation is unknown; this one reads it.
await table.repair(plan);
nft("flush", "chain", ip, "kpng", "services");
// Our own commit after that of another program must not hide it.
const sent = countSent();
const sentByChange: number[] = [];
for (const endpoints of [2, 3, 2]) {
  plan.set("ns/web-1", endpoints);
  const before = sent();
  await table.sync(plan, new Set(["ns/web-1"] as const), nothing);
  sentByChange.push(sent() - before);
}
const lostRules = sizes(await table.repair(plan));
// A commit with rules of its own reads all rules afterwards, and must not take these for right.
nft("flush", "chain", ip, "kpng", "services");
plan.set("ns/web-1", 5);
await table.sync(plan, new Set(["ns/web-1"] as const), nothing);
const lostBeforeNewRules = (await table.repair(plan)).chains;
plan.set("ns/web-1", 2);
await table.sync(plan, new Set(["ns/web-1"] as const), nothing);
// The same expressions with another number.
nft("flush", "chain", ip, "kpng", "mark_masquerade");
nft("add", "rule", ip, "kpng", "mark_masquerade", "meta mark set meta mark or 0x8000");
const changedRule = sizes(await table.repair(plan));
const ranges = /ranges_[0-9a-f]{16}/.exec(nft("list", "sets", ip))?.[0] ?? "";
const addedRange = family === "v6" ? "2001:db9::/32" : "203.0.113.0/24";
nft("add", "element", ip, "kpng", ranges, `{ ${addedRange} }`);
const foreignRange = sizes(await table.repair(plan));
const rangesAfter = nft("list", "set", ip, "kpng", ranges);
const id = { family, name: "kpng" } as const;
nft("add", "table", ip, "kpng", "{ flags dormant; }");
const dormant = sizes(await table.repair(plan));
nft("add", "chain", ip, "kpng", "filter_forward", "{ policy drop; }");
const dropping = sizes(await table.repair(plan));
const stateAfter = nft("list", "table", ip, "kpng");
const knownBefore = table.isKnown;
/** Flushes a chain immediately before the rules are read for the given time, as another program may do. */
const readChains = connection.readChains.bind(connection);
const flushBeforeRead = (chain: string, at: number): void => {
  let count = 0;
  connection.readChains = async (id) => {
    if (++count === at) nft("flush", "chain", ip, "kpng", chain);
    return await readChains(id);
  };
};
table = make();
flushBeforeRead("check", 2);
await table.syncAll(plan, nothing);
const flushedInLoad = { isKnown: table.isKnown, chains: (await table.repair(plan)).chains, isRepaired: table.isKnown };
plan.set("ns/sticky-9", 4);
flushBeforeRead("sticky_pick_4", 1);
await table.sync(plan, new Set(["ns/sticky-9"] as const), nothing);
const flushedInSync = { isKnown: table.isKnown, chains: (await table.repair(plan)).chains, isRepaired: table.isKnown };
connection.readChains = readChains;
plan.set("ns/sticky-9", 0);
await table.sync(plan, new Set(["ns/sticky-9"] as const), nothing);
const known = await connection.generation();
const present = [...(await connection.readElements(id, "frontends"))]
  .slice(0, 1)
  .map(([key, bytes]) => ({ key, data: { kind: "value", bytes } as const }));
// Changes nothing, so the kernel does not count it; the next change takes the number that it would have had.
await connection.commit(id, [{ set: "frontends", kind: "put", elements: present }]);
nft("add", "counter", ip, "kpng", "seven", "{ packets 7 bytes 700 }");
const isForeignSeen = (await connection.generation()) !== known;
nft("delete", "table", ip, "kpng");
const lostTable = sizes(await table.repair(plan)).elements;
const element = { key: "\0\0\0\0", data: { kind: "goto", chain: "absent" } } as const;
const refusal = await failureOf(connection.commit(id, [{ set: "picks", kind: "put", elements: [element] }]));
const repaired = elementsOf("frontends");
// Another number of endpoints, so that a chain for it is added to a table that is in use.
plan.set("ns/web-1", 7);
// The longest name of a Service; with that of a port, a comment would be longer than nft accepts.
const long = `${"n".repeat(63)}/${"s".repeat(61)}-4` as const;
plan.set(long, 1);
await table.sync(plan, new Set(["ns/web-1", long] as const), nothing);
const listing = nft("--stateless", "list", "table", ip, "kpng");
// Rules and elements of another program inside our table, which lead to a chain that is to go.
const sticky = /sticky_[0-9a-f]{16}/.exec(listing)?.[0] ?? "";
const address = family === "v6" ? "ipv6_addr" : "ipv4_addr";
nft("add", "rule", ip, "kpng", sticky, "counter");
nft("add", "chain", ip, "kpng", "foreign");
nft("add", "rule", ip, "kpng", "foreign", "jump", sticky);
nft("add", "rule", ip, "kpng", "nat_prerouting", "jump", "foreign");
nft("add", "map", ip, "kpng", "foreign_map", `{ type ${address} : verdict; }`);
nft("add", "element", ip, "kpng", "foreign_map", `{ ${family === "v6" ? "::9" : "192.0.2.9"} : jump ${sticky} }`);
for (const key of ["ns/web-1", "ns/sticky-2", long] as const) plan.set(key, 0);
const blocked = await failureOf(table.sync(plan, new Set(["ns/web-1", "ns/sticky-2", long] as const), nothing));
await table.syncAll(plan, nothing);
const left = nft("list", "table", ip, "kpng").match(
  /foreign|(?:clients|ranges|sticky)_[0-9a-f]{16}|\d+\.\d+\.\d+\.\d+ \. tcp/g,
);
nft("add", "table", ip, "other");
const foreign = await failureOf(readOwnObjects(connection, { family, name: "other" }));
connection.close();
// It may get the descriptor of the closed one.
const other = new NftablesConnection();
const closed = await failureOf(connection.generation());
other.close();
process.stdout.write(
  JSON.stringify({
    ...{
      first: loaded,
      frontends,
      slots,
      again,
      restartAgain,
      shrunk,
      noDrift,
      lostElements,
      putBack,
      lostRules,
      lostBeforeNewRules,
      changedRule,
      lostTable,
    },
    chainCommits: chainCommitsOfLoad,
    closed,
    refusal,
    repaired,
    left,
    foreign,
    listing,
    foreignRange,
    dormant,
    dropping,
    stateAfter,
    knownBefore,
    flushedInLoad,
    flushedInSync,
    rangesAfter,
    ownChange,
    readsAfterOwnChange,
    sentByChange,
    isForeignSeen,
    blocked,
  }),
);
