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
