import type { ElementBytes, ElementValue } from "../layout/element-keys.ts";
import { formatElement } from "../layout/format-element.ts";
import { type JsonElement, parseElement } from "../layout/parse-element.ts";
import { dataOf, type SharedSet, sharedSets } from "../layout/set-names.ts";
import type { BatchStep, ElementChange, SetElement, TableId } from "../netlink/element-batch.ts";
import { BackendNftError } from "../netlink/nft-error.ts";
import type { TableObjects } from "../netlink/read-objects.ts";
import type { TableConnection } from "../netlink/table-connection.ts";
import { ipOf, renderPickChain, renderSlots } from "../render/skeleton.ts";
import { countOfPick } from "./needed-picks.ts";
import type { RunNft } from "./run-nft.ts";

/** The parts of a JSON list of nft that are used. */
interface NftList {
  readonly nftables: readonly {
    readonly table?: { readonly name: string };
    readonly chain?: { readonly name: string };
    readonly set?: { readonly name: string; readonly elem?: readonly JsonElement[] };
    readonly map?: { readonly name: string; readonly elem?: readonly JsonElement[] };
    readonly counter?: { readonly name: string; readonly packets: number };
    readonly rule?: { readonly chain: string; readonly expr: unknown };
  }[];
}

/**
 * Reads and changes tables with the program nft alone. `openConnection` uses it where `NftablesConnection` cannot open
 * a netlink socket, e.g. because koffi does not support the platform.
 *
 * A change costs a process, and the time that nft takes to read all tables of the network namespace; a comparison reads
 * the whole table each time.
 */
export class NftToolConnection implements TableConnection {
  /** nft divides its input as it needs, or reports the limit of its own socket. */
  readonly maxTransactionBytes = Number.POSITIVE_INFINITY;
  readonly #runNft: RunNft;
  #generation = 0;

  constructor(runNft: RunNft) {
    this.#runNft = runNft;
  }

  async commit(table: TableId, steps: readonly BatchStep[]): Promise<void> {
    const picks = steps.flatMap((step) => (step.kind === "chain" ? [step.chain] : []));
    const changes = steps.flatMap((step) => (step.kind === "chain" ? [] : [formatChange(table, step)]));
    const commands = `${picks.length === 0 ? "" : await this.#renderPicks(table, picks)}${changes.join("")}`;
    if (commands !== "") await this.#runNft.apply(commands);
  }

  /** nft does not tell the generation of the ruleset, so anything may have changed. */
  async generation(): Promise<number> {
    this.#generation += 1;
    return this.#generation;
  }

  async readElements(
    table: TableId,
    set: string,
    part: "data" | "comment" = "data",
  ): Promise<ReadonlyMap<ElementBytes, ElementValue>> {
    const shared = sharedSets.find((one) => one === set);
    if (shared === undefined) return await this.#readOtherSet(table, set);
    const isSet = dataOf[shared] === "none" || dataOf[shared] === "comment";
    const { nftables } = await this.#list([isSet ? "set" : "map", ipOf(table.family), table.name, set]);
    const elements = nftables.flatMap(({ set: one, map = one }) => map?.elem ?? []);
    return new Map(
      elements.map((json) => {
        const { key, value, comment } = parseElement(table.family, shared, json);
        return [key, part === "data" ? value : comment] as const;
      }),
    );
  }

  async readCounter(table: TableId, name: string): Promise<number | undefined> {
    const { nftables } = await this.#list(["counters", "table", ipOf(table.family), table.name]);
    return nftables.find(({ counter }) => counter?.name === name)?.counter?.packets;
  }

  async readChains(table: TableId): Promise<ReadonlyMap<string, readonly string[]>> {
    const { nftables } = await this.#listTable(table);
    const rules = nftables.flatMap(({ rule }) => (rule === undefined ? [] : [rule]));
    const byChain = Map.groupBy(rules, ({ chain }) => chain);
    return new Map([...byChain].map(([chain, list]) => [chain, list.map(({ expr }) => JSON.stringify(expr))]));
  }

  async listObjects(table: TableId): Promise<TableObjects | undefined> {
    const { nftables: tables } = await this.#list(["tables", ipOf(table.family)]);
    if (!tables.some((one) => one.table?.name === table.name)) return undefined;
    const { nftables } = await this.#listTable(table);
    return {
      chains: nftables.flatMap(({ chain }) => chain?.name ?? []),
      sets: nftables.flatMap(({ set, map }) => [
        ...(set === undefined ? [] : [{ kind: "set" as const, name: set.name }]),
        ...(map === undefined ? [] : [{ kind: "map" as const, name: map.name }]),
      ]),
    };
  }

  close(): void {}

  /**
   * Renders the commands that install pick chains. nft 1.0.6 cannot add their rules to a table whose map `slots` exists
   * ("conflicting protocols specified"), but to one that declares the map in the same transaction. So the map and all
   * chains that look it up are written again.
   */
  async #renderPicks(table: TableId, names: readonly string[]): Promise<string> {
    const objects = await this.listObjects(table);
    const installed = objects?.chains.filter((name) => countOfPick(name) !== undefined && !name.startsWith("sticky_"));
    const slots = [...(await this.readElements(table, "slots"))].map(
      ([key, bytes]): SetElement => ({ key, data: { kind: "value", bytes } }),
    );
    const at = `${ipOf(table.family)} ${table.name}`;
    return [
      ...(installed ?? []).map((name) => `flush chain ${at} ${name}\n`),
      `delete map ${at} slots\n${renderSlots(table.family, table.name)}\n`,
      ...[...new Set([...(installed ?? []), ...names])].map((name) =>
        renderPickChain(table.family, table.name, countOfPick(name) ?? 0),
      ),
      formatChange(table, { set: "slots", kind: "put", elements: slots }),
    ].join("");
  }

  /** Reads a set of source ranges, whose elements are only compared with those of an earlier call. */
  async #readOtherSet({ family, name }: TableId, set: string): Promise<ReadonlyMap<ElementBytes, ElementValue>> {
    const { nftables } = await this.#list(["set", ipOf(family), name, set]);
    const elements = nftables.flatMap((one) => one.set?.elem ?? []);
    return new Map(elements.map((json) => [JSON.stringify(json), ""]));
  }

  #listTable({ family, name }: TableId): Promise<NftList> {
    return this.#list(["table", ipOf(family), name], "--terse");
  }

  async #list(what: readonly string[], ...options: readonly string[]): Promise<NftList> {
    return JSON.parse(await this.#runNft.list([...options, "list", ...what]));
  }
}

/** Formats an element change as commands of nft. */
function formatChange({ family, name }: TableId, { set, kind, elements }: ElementChange): string {
  const command = `${kind === "put" ? "add" : "delete"} element ${ipOf(family)} ${name} `;
  return elements.map((element) => `${command}${formatOne(family, sharedSet(set), element)}\n`).join("");
}

function formatOne(family: TableId["family"], set: SharedSet, { key, data, comment }: SetElement): string {
  const value = data === undefined ? undefined : data.kind === "value" ? data.bytes : data.chain;
  const text = formatElement(family, set, key, value);
  if (comment === undefined) return text;
  const left = formatElement(family, set, key, undefined).slice(0, -" }".length);
  // A name from a state file may contain any character.
  return `${left} comment "${comment.replace(/[^ !#-~]/g, "?")}"${text.slice(left.length)}`;
}

function sharedSet(name: string): SharedSet {
  const set = sharedSets.find((one) => one === name);
  if (set === undefined) throw new BackendNftError("READ_FAILED", `set ${name} is not a shared set`);
  return set;
}
