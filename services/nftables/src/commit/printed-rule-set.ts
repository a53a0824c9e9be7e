import type { FamilyPlan, RuleChange, RuleSet } from "@kpng/backend-kit/proxy/rule-set.ts";
import type { SyncStages } from "@kpng/backend-kit/types/sync-update.ts";
import type { Family } from "@kpng/model/address.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { differentChains, type RulesByChain, readOwnObjects, readTable } from "../read/read-table.ts";
import { ServiceElements } from "../render/service-elements.ts";
import { renderFrame, renderPicks } from "../render/skeleton.ts";
import { formatTransaction, makeNftChange } from "./format-rules.ts";
import type { NftTableOptions } from "./nft-table.ts";
import { fillElements, planChange, planInstall, type TablePlan } from "./plan-table.ts";

interface PrintedRuleSetOptions extends NftTableOptions {
  /** Receives the commands that would be executed; undefined for `--diff`. */
  readonly print: ((text: string) => void) | undefined;
}

/**
 * Compares the table of one family with its desired contents, and changes nothing.
 *
 * It shares with `NftTable` no code that could write to the kernel.
 */
export class PrintedRuleSet implements RuleSet {
  readonly servesWholeAddresses = true;
  readonly #options: PrintedRuleSetOptions;
  /** Undefined before the first sync. */
  #planned: PlannedTable | undefined;

  constructor(options: PrintedRuleSetOptions) {
    this.#options = options;
  }

  get family(): Family {
    return this.#options.family;
  }

  async sync(plan: FamilyPlan, touched: ReadonlySet<ServiceKey> | "all", stages: SyncStages): Promise<RuleChange> {
    if (touched === "all" || this.#planned === undefined) return await this.#syncAll(plan, stages);
    const { elements, picks } = this.#planned;
    for (const key of touched) elements.put(key, plan.service(key));
    return this.#print(stages, this.#planned, planChange(elements, picks));
  }

  async repair(): Promise<RuleChange> {
    return makeNftChange(this.family, "full", { elements: [], chains: [] });
  }

  async isInstalled(): Promise<boolean> {
    const { connection, table } = this.#options;
    return (await readOwnObjects(connection, { family: this.family, name: table })) !== undefined;
  }

  async close(): Promise<void> {
    this.#options.connection.close();
  }

  async #syncAll(plan: FamilyPlan, stages: SyncStages): Promise<RuleChange> {
    const { family, table, maxClients, connection } = this.#options;
    const id = { family, name: table };
    const present = await readTable(connection, id);
    const elements = new ServiceElements(id, maxClients, plan.node.podTraffic);
    await fillElements(elements, plan, present.elements);
    const frame = renderFrame({ ...this.#options, node: plan.node });
    const change = await planInstall(elements, present, frame);
    this.#planned = { elements, picks: new Set() };
    return this.#print(stages, this.#planned, change, { skeleton: frame.skeleton, rules: present.rules });
  }

  /**
   * Prints a plan as nft commands, and from then on treats it as carried out. In a full sync, also compares the chains
   * with the rules in the kernel.
   */
  #print(
    stages: SyncStages,
    { elements, picks }: PlannedTable,
    plan: TablePlan,
    full?: { readonly skeleton: string; readonly rules: RulesByChain },
  ): RuleChange {
    const { family, table, print } = this.#options;
    const commands = `${full?.skeleton ?? ""}${renderPicks({ family, name: table }, plan.picks)}${plan.additions}`;
    const chains =
      full === undefined
        ? []
        : [...differentChains(`${commands}${plan.last}`, full.rules), ...unwantedChains(plan.last, full.rules)];
    const change = { elements: plan.elements, chains };
    const text = `${commands}${formatTransaction(family, change, table)}${plan.last}`;
    if (text !== "" && print !== undefined) {
      stages.committing();
      print(text);
    }
    for (const name of plan.picks) picks.add(name);
    elements.chains.committed();
    elements.table.committed();
    return makeNftChange(family, full === undefined ? "partial" : "full", change);
  }
}

/** Returns the names of chains with rules that the commands delete and do not add again. */
function unwantedChains(commands: string, rules: RulesByChain): readonly string[] {
  const deletions = commands.matchAll(/^delete chain \S+ \S+ (\S+)$(?!\nadd )/gm);
  return [...deletions].map(([, name = ""]) => name).filter((name) => rules.has(name));
}

/** The elements and pick chains that a table would have. */
interface PlannedTable {
  readonly elements: ServiceElements;
  readonly picks: Set<string>;
}
