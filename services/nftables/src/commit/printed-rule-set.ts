import type { FamilyPlan, RuleSet } from "@kpng/backend-kit/proxy/rule-set.ts";
import type { SyncStages } from "@kpng/backend-kit/types/sync-update.ts";
import type { Family } from "@kpng/model/address.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { differentChains, type RulesByChain, readElements, readOwnObjects, readRules } from "../read/read-table.ts";
import { ServiceElements } from "../render/service-elements.ts";
import { renderHooks, renderSkeleton } from "../render/skeleton.ts";
import { formatTransaction, makeNftChange, type NftChange } from "./nft-rule-set.ts";
import { type NftTableOptions, noObjects, type TableChange } from "./nft-table.ts";
import { type Frame, fillElements, planChange, planInstall, renderPick, type TablePlan } from "./plan-table.ts";

/** Options of {@link PrintedRuleSet}. */
interface PrintedRuleSetOptions extends NftTableOptions {
  /** Receives the commands that would be executed; undefined for `--diff`. */
  readonly print: ((text: string) => void) | undefined;
}

/**
 * Compares the table of one family with its desired contents, and changes nothing.
 *
 * It shares with `NftRuleSet` no code that could write to the kernel.
 */
export class PrintedRuleSet implements RuleSet<NftChange> {
  readonly servesWholeAddresses = true;
  readonly #options: PrintedRuleSetOptions;
  /** The planned elements and pick chains; undefined before the first sync. */
  #planned: { readonly elements: ServiceElements; readonly picks: Set<string> } | undefined;

  constructor(options: PrintedRuleSetOptions) {
    this.#options = options;
  }

  get family(): Family {
    return this.#options.family;
  }

  async sync(plan: FamilyPlan, touched: ReadonlySet<ServiceKey> | "all", stages: SyncStages): Promise<NftChange> {
    if (touched === "all" || this.#planned === undefined) return await this.#syncAll(plan, stages);
    const { elements, picks } = this.#planned;
    for (const key of touched) elements.put(key, plan.service(key));
    const change = planChange(elements, picks);
    for (const name of change.picks) picks.add(name);
    return this.#print(stages, "partial", elements, change);
  }

  async repair(): Promise<NftChange> {
    return makeNftChange(this.family, "full", { elements: [], chains: [] });
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
    const elements = new ServiceElements(id, maxClients, plan.node.podTraffic);
    const present = await readOwnObjects(connection, id);
    const installed = await readElements(connection, id, present?.shared ?? new Set());
    await fillElements(elements, plan, installed);
    const options = { node: plan.node, table, masqueradeBit };
    const frame = { skeleton: renderSkeleton(options), hooks: renderHooks(id) };
    const objects = present ?? noObjects;
    const change = await planInstall(elements, { objects, elements: installed }, frame);
    this.#planned = { elements, picks: new Set(change.picks) };
    const rules =
      present === undefined ? new Map<string, readonly string[]>() : await readRules(connection, id, present);
    return this.#print(stages, "full", elements, change, { ...frame, rules });
  }

  /** Prints a plan as nft commands, and from then on treats it as carried out. */
  #print(
    stages: SyncStages,
    mode: "full" | "partial",
    elements: ServiceElements,
    plan: TablePlan,
    { skeleton, hooks, rules }: FrameDifference = { skeleton: "", hooks: "", rules: new Map() },
  ): NftChange {
    const { family, table, print } = this.#options;
    const change: TableChange = { elements: plan.elements, chains: differentChains(skeleton + hooks, rules) };
    const picks = [...plan.picks].map((name) => renderPick({ family, name: table }, name)).join("");
    const puts = formatTransaction(family, change, table);
    const text = `${skeleton}${picks}${plan.additions}${puts}${plan.last}`;
    if (text !== "" && print !== undefined) {
      stages.committing();
      print(text);
    }
    elements.chains.committed();
    elements.table.committed();
    return makeNftChange(family, mode, change);
  }
}

/** The rules that do not depend on Services, and the installed rules. */
interface FrameDifference extends Frame {
  readonly rules: RulesByChain;
}
