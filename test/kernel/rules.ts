import { checkRules } from "../conformance/check-rules.ts";
import { type Family, families } from "../scenario/places.ts";
import type { InstalledRules } from "./backends.ts";
import type { TwoNodes } from "./laboratory/two-nodes.ts";

/** Rules that `iptables-save` prints, of kube-proxy or of kpng-iptables. */
export const iptablesRules: InstalledRules = {
  show: async (world) => {
    const { v4, v6 } = await world.rules();
    return v4 + v6;
  },
  trace: async (world, scenario, proxy) => checkRules(await world.rules(), scenario, proxy),
};

/** Empties table nat. Without any rule that uses connection tracking, the kernel would stop translating back. */
export async function flushNat(world: TwoNodes): Promise<void> {
  await flushTables(world, ["nat"]);
}

/** Empties tables of both families on n1. */
export async function flushTables({ laboratory }: TwoNodes, tables: readonly string[]): Promise<void> {
  for (const table of tables) {
    for (const tool of ["iptables", "ip6tables"]) await laboratory.run("n1", [tool, "-t", table, "-F"]);
  }
}

/**
 * Empties the chain `services` of a table of kpng-nft or kube-proxy. The other chains stay: without any rule that uses
 * connection tracking, the kernel would stop tracking and translating back.
 */
export async function flushServices({ laboratory }: TwoNodes, table: string): Promise<void> {
  for (const ip of ["ip", "ip6"]) await laboratory.run("n1", ["nft", "flush", "chain", ip, table, "services"]);
}

/** Returns the lines of iptables-save for chains with a prefix: the chains, their rules and the jumps to them. */
function ownLines(saved: string, prefix: string): readonly string[] {
  const isOwn = new RegExp(`^(:${prefix}|-A ${prefix}|-A .* -[jg] ${prefix})`);
  let table = "";
  const lines: string[] = [];
  for (const line of saved.split("\n")) {
    if (line.startsWith("*")) table = line;
    else if (isOwn.test(line)) lines.push(`${table} ${line}`);
  }
  return lines;
}

/**
 * Normalizes our rules, so that equal rules have equal texts. iptables-save prints chains in order of creation or by
 * name, depending on version and variant, and with counters. The order of rules in a chain is kept.
 */
export function comparableRules(saved: Readonly<Record<Family, string>>, prefix: string): readonly string[] {
  const keyOf = (line: string) => line.split(" ").slice(0, 3).join(" ");
  return families.flatMap((family) =>
    ownLines(saved[family], prefix)
      .map((line) => `${family} ${line.replace(/ \[\d+:\d+\]$/, "")}`)
      .map((line) => ({ key: keyOf(line.replace(" :", " -A ")), line }))
      .toSorted((one, other) => (one.key < other.key ? -1 : one.key > other.key ? 1 : 0))
      .map(({ line }) => line),
  );
}

/** A map, set or chain in a listing of nft. */
interface Block {
  readonly kind: string;
  readonly name: string;
  readonly body: string;
}

const frontendMaps = ["frontends", "local_frontends", "nodeports", "local_nodeports"];
/** Sets whose elements do not depend on the history of the table. */
const plainSets = [
  "refused",
  "dropped",
  "refused_nodeports",
  "dropped_nodeports",
  "cluster_ips",
  "hairpin",
  "firewall",
];

/**
 * Normalizes a table of kpng-nft as `nft list table` prints it, so that tables that do the same have equal lines: ids
 * of endpoint sets are replaced by the endpoints that they lead to, and chains that any history may leave are omitted.
 */
export function comparableTable(listing: string): readonly string[] {
  const blocks = [...listing.matchAll(/^\t(map|set|chain) (\S+) \{\n([\s\S]*?)^\t\}/gm)].map(
    ([, kind = "", name = "", body = ""]): Block => ({ kind, name, body }),
  );
  const elements = new Map(blocks.map(({ name, body }) => [name, readElements(body)]));
  const of = (name: string): ReadonlyMap<string, string> => elements.get(name) ?? new Map();
  let slotCount = 0;
  /** Endpoints of a set with this id, in the order of their slots. */
  const endpointsOf = (id: number, count: number): readonly string[] => {
    const handle = formatHandle(id * 2 ** 13);
    const slots = [...of(count === 0 ? "sticky_slots" : "slots")].filter(([key]) => key.startsWith(`${handle} . `));
    slotCount += slots.length;
    if (count === 0) return slots.map(([, endpoint]) => of("sticky_endpoints").get(endpoint) ?? "missing");
    if (slots.length !== count) return [`${slots.length} slots for a count of ${count}`];
    return of("picks").get(formatHandle(count)) === `goto pick_${count}`
      ? slots.map(([, endpoint]) => endpoint)
      : ["no chain"];
  };
  const lines = frontendMaps.flatMap((map) =>
    [...of(map)].map(([key, value]) => {
      const packed = parseHandle(value);
      const [kind, id, count] = [
        Math.floor(packed / 2 ** 30),
        Math.floor(packed / 2 ** 13) % 2 ** 17,
        packed % 2 ** 13,
      ];
      return `${map} ${key}: kind ${kind}, ${[...endpointsOf(id, count)].sort().join(", ")}`;
    }),
  );
  return [
    ...lines.sort(),
    ...plainSets.flatMap((set) => [...of(set).keys()].sort().map((key) => `${set} ${key}`)),
    `endpoints in use: ${slotCount > 0}`,
    ...blocks.flatMap(chainLines).sort(),
  ];
}

/** The rules of a chain as one line; none for chains whose number depends on the history. */
function chainLines({ kind, name, body }: Block): readonly string[] {
  if (kind !== "chain" || /^(?:sticky_)?pick_\d+$/.test(name)) return [];
  const rules = body.split("\n").map((line) => line.trim());
  // This rule of a chain for affinity contains the id of its set.
  return [`${name}: ${rules.filter((rule) => !/^meta priority set [0-9a-f]+:[0-9a-f]+$/.test(rule)).join("; ")}`];
}

/** The elements in the body of a map or set, without comments: values by key, "" in a set. */
function readElements(body: string): ReadonlyMap<string, string> {
  const text = /elements = \{([\s\S]*)\}/.exec(body)?.[1] ?? "";
  const items = text.replace(/ comment "[^"]*"/g, "").split(",");
  return new Map(
    items.flatMap((item) => {
      const words = item.trim().split(/\s+:\s+/);
      return words[0] === undefined || words[0] === "" ? [] : [[words[0], words[1] ?? ""] as const];
    }),
  );
}

/** A number as nft prints values of type classid. */
function formatHandle(value: number): string {
  return value === 0 ? "none" : `${Math.floor(value / 65_536).toString(16)}:${(value % 65_536).toString(16)}`;
}

function parseHandle(text: string): number {
  const [high = "0", low = "0"] = text.split(":");
  return Number.parseInt(high, 16) * 65_536 + Number.parseInt(low, 16);
}
