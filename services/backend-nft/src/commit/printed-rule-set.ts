import type { FamilyPlan, RuleList, RuleSet } from "@kpng/backend-kit/proxy/rule-set.ts";
import type { SyncStages } from "@kpng/backend-kit/types/sync-update.ts";
import type { Family } from "@kpng/model/address.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { ServiceElements } from "../elements/service-elements.ts";
import { readOwnObjects } from "../read/own-objects.ts";
import { readRules } from "../read/read-rules.ts";
import { readElements } from "../read/read-table.ts";
import { renderHooks, renderPickChain, renderSkeleton, renderStickyPickChain } from "../render/skeleton.ts";
import { fillElements, putPick, putRecord } from "./fill-elements.ts";
import { countOfPick, neededPicks } from "./needed-picks.ts";
import { formatTransaction, makeNftChange, type NftChange } from "./nft-change.ts";
import type { NftTableOptions, TableChange } from "./nft-table.ts";

/** Options of {@link PrintedRuleSet}. */
export interface PrintedRuleSetOptions extends NftTableOptions {
  /** Receives the commands that would be executed; undefined for `--diff`. */
  readonly print: ((text: string) => void) | undefined;
}

/**
 * Compares the table of one family with what it should contain, and changes nothing. `backend.ts` makes it in place of
 * `NftRuleSet` for `--dry-run` and `--diff`.
 *
 * Separate from `NftRuleSet`, so that no code of these two runs can write to the kernel.
 */
export class PrintedRuleSet implements RuleSet<NftChange> {
  readonly #options: PrintedRuleSetOptions;
  #elements: ServiceElements | undefined;

  constructor(options: PrintedRuleSetOptions) {
    this.#options = options;
  }

  get family(): Family {
    return this.#options.family;
  }

  get desired(): RuleList {
    return { count: () => 0, lines: () => [] };
  }

  get installed(): RuleList {
    return { count: () => 0, lines: () => [] };
  }

  async sync(plan: FamilyPlan, touched: ReadonlySet<ServiceKey> | "all", stages: SyncStages): Promise<NftChange> {
    const elements = this.#elements;
    if (touched === "all" || elements === undefined) return await this.#syncAll(plan, stages);
    for (const key of touched) elements.put(key, plan.service(key));
    putRecord(elements, plan);
    const { table, family } = this.#options;
    const needed = neededPicks(elements.table.newValues());
    for (const name of needed) putPick(elements, name);
    const change: TableChange = { elements: elements.table.changes(), chains: [] };
    const chains = `${needed.map((name) => this.#renderPick(name)).join("")}${elements.chains.additions()}`;
    const text = formatTransaction(family, change, Number.POSITIVE_INFINITY, table);
    this.#print(stages, `${chains}${text}${elements.chains.removals()}`);
    elements.chains.committed();
    elements.table.committed();
    return makeNftChange(family, "partial", change, table);
  }

  async repair(): Promise<NftChange> {
    return makeNftChange(this.family, "full", { elements: [], chains: [] }, this.#options.table);
  }

  async isInstalled(): Promise<boolean> {
    const { connection, table } = this.#options;
    return (await readOwnObjects(connection, { family: this.family, name: table })) !== undefined;
  }

  async close(): Promise<void> {
    this.#options.connection.close();
  }

  async #syncAll(plan: FamilyPlan, stages: SyncStages): Promise<NftChange> {
    const { family, table, masqueradeBit, maxClients, connection } = this.#options;
    const id = { family, name: table };
    const elements = new ServiceElements(id, maxClients);
    this.#elements = elements;
    const found = await readOwnObjects(connection, id);
    const isNew = found === undefined;
    const actual = await readElements(connection, id, found?.shared ?? new Set());
    await fillElements(elements, plan, actual);
    putRecord(elements, plan);
    const existing = found ?? { chains: [], sets: [] };
    for (const name of existing.chains) putPick(elements, name);
    await elements.table.compareWith(actual);
    const needed = neededPicks(elements.table.newValues());
    for (const name of needed) putPick(elements, name);
    const rules = isNew ? new Map<string, readonly string[]>() : await readRules(connection, id);
    const options = { node: plan.node, table, masqueradeBit };
    const [skeleton, hooks] = [renderSkeleton(options), renderHooks(options)];
    const change: TableChange = {
      elements: elements.table.changes(),
      chains: differentChains(skeleton + hooks, rules),
    };
    const picks = needed.map((name) => this.#renderPick(name)).join("");
    const text = formatTransaction(family, change, Number.POSITIVE_INFINITY, table);
    const removals = elements.chains.removalsOf(existing.chains, existing.sets);
    this.#print(stages, `${skeleton}${picks}${elements.chains.additions()}${text}${removals}${hooks}`);
    elements.chains.committed();
    elements.table.committed();
    return makeNftChange(family, "full", change, table);
  }

  #renderPick(name: string): string {
    const { family, table } = this.#options;
    const render = name.startsWith("sticky_") ? renderStickyPickChain : renderPickChain;
    return render(family, table, countOfPick(name) ?? 0);
  }

  #print(stages: SyncStages, text: string): void {
    if (text === "" || this.#options.print === undefined) return;
    stages.committing();
    this.#options.print(text);
  }
}

/** Returns the names of chains in `commands` that have another number of rules in the kernel. */
function differentChains(commands: string, rules: ReadonlyMap<string, readonly string[]>): readonly string[] {
  const wanted = new Map<string, number>();
  for (const [, name = ""] of commands.matchAll(/^add rule \S+ \S+ (\S+)/gm)) {
    wanted.set(name, (wanted.get(name) ?? 0) + 1);
  }
  return [...wanted].flatMap(([name, count]) => ((rules.get(name)?.length ?? 0) === count ? [] : [name]));
}
