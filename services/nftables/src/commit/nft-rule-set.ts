import type { InstalledState } from "@kpng/backend-kit/proxy/rule-record.ts";
import type { FamilyPlan, RuleList, RuleSet } from "@kpng/backend-kit/proxy/rule-set.ts";
import type { SyncStages } from "@kpng/backend-kit/types/sync-update.ts";
import type { Family } from "@kpng/model/address.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { findDamage } from "../read/find-damage.ts";
import { readInstalledState } from "../read/installed-state.ts";
import { readOwnObjects } from "../read/own-objects.ts";
import { readRules } from "../read/read-rules.ts";
import { readElements } from "../read/read-table.ts";
import { listRules } from "./list-rules.ts";
import { makeNftChange, type NftChange } from "./nft-change.ts";
import { NftTable, type NftTableOptions } from "./nft-table.ts";

/**
 * The rules of one family in a table of nftables. `backend.ts` makes one for each family, and `FamilyRules` of
 * backend-kit calls it through the interface `RuleSet`.
 *
 * It translates between that interface and `NftTable`, which reads and writes the kernel. For `--dry-run` and `--diff`,
 * `PrintedRuleSet` takes its place.
 */
export class NftRuleSet implements RuleSet<NftChange> {
  readonly #options: NftTableOptions;
  readonly #table: NftTable;
  #plan: FamilyPlan | undefined;

  constructor(options: NftTableOptions) {
    this.#options = options;
    this.#table = new NftTable(options);
  }

  get family(): Family {
    return this.#options.family;
  }

  get desired(): RuleList {
    return listRules(this.family, () => this.#table.elements);
  }

  get installed(): RuleList {
    return listRules(this.family, () => (this.#table.isKnown ? this.#table.elements : undefined));
  }

  async sync(plan: FamilyPlan, touched: ReadonlySet<ServiceKey> | "all", stages: SyncStages): Promise<NftChange> {
    this.#plan = plan;
    const isFull = touched === "all" || !this.#table.isKnown;
    const change = isFull
      ? await this.#table.syncAll(plan, () => stages.committing())
      : await this.#table.sync(plan, touched, () => stages.committing());
    return makeNftChange(this.family, isFull ? "full" : "partial", change, this.#options.table);
  }

  async repair(stages?: SyncStages): Promise<NftChange> {
    if (this.#plan === undefined) throw new Error("repair before the first sync");
    return makeNftChange(
      this.family,
      "full",
      await this.#table.repair(this.#plan, () => stages?.committing()),
      this.#options.table,
    );
  }

  async isInstalled(): Promise<boolean> {
    return (await this.readInstalled()).kind !== "absent";
  }

  readInstalled(): Promise<InstalledState> {
    const { connection, table } = this.#options;
    return readInstalledState(connection, { family: this.family, name: table });
  }

  async findDamage(): Promise<string | undefined> {
    const { connection, table } = this.#options;
    const id = { family: this.family, name: table };
    const objects = await readOwnObjects(connection, id);
    if (objects === undefined) return `table ${table} does not exist`;
    return findDamage(await readRules(connection, id), await readElements(connection, id, objects.shared));
  }

  async repairFrame(plan: FamilyPlan, stages?: SyncStages): Promise<NftChange> {
    const change = await this.#table.repairFrame(plan, () => stages?.committing());
    return makeNftChange(this.family, "full", change, this.#options.table);
  }

  async close(): Promise<void> {
    this.#options.connection.close();
  }
}
