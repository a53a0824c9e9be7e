import type { InstalledState } from "@kpng/backend-kit/proxy/rule-record.ts";
import type { FamilyPlan, RuleChange, RuleList, RuleSet } from "@kpng/backend-kit/proxy/rule-set.ts";
import type { SyncStages } from "@kpng/backend-kit/types/sync-update.ts";
import type { AddressSet, Family } from "@kpng/model/address.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { describeKey } from "../layout/keys.ts";
import { type MapSizes, sizes } from "../layout/map-layouts.ts";
import { type FrontendDifference, makeEbpfChange, maxDescribed } from "../tables/ebpf-change.ts";
import { findDamage } from "../tables/find-damage.ts";
import { describeFrontend } from "../tables/wanted-service.ts";
import type { Datapath } from "./datapath.ts";
import { FamilyTables } from "./family-tables.ts";
import { listInstalled, listWanted } from "./list-frontends.ts";
import type { EbpfMaps } from "./maps.ts";
import type { TablesChange } from "./tables-change.ts";

/** Options of {@link EbpfRuleSet}. */
export interface EbpfRuleSetOptions {
  readonly family: Family;
  readonly datapath: Datapath;
  readonly mapSizes: MapSizes;
  /** Reads the node's own addresses. */
  readonly localAddresses: () => AddressSet;
}

/**
 * The frontends of one family in maps of the kernel. `backend.ts` makes one for each family, and `FamilyRules` of
 * backend-kit calls it through the interface `RuleSet`. For `--dry-run` and `--diff`, `PrintedRuleSet` takes its place.
 */
export class EbpfRuleSet implements RuleSet {
  readonly #options: EbpfRuleSetOptions;
  readonly #tables: FamilyTables;
  #plan: FamilyPlan | undefined;
  /** Whether each frontend in the maps has a Service. */
  #isRead = false;

  constructor(options: EbpfRuleSetOptions) {
    const { family, datapath, mapSizes } = options;
    this.#options = options;
    this.#tables = new FamilyTables(family, datapath.maps, datapath.grace, mapSizes);
  }

  get family(): Family {
    return this.#options.family;
  }

  get desired(): RuleList {
    return listWanted(this.#tables.services);
  }

  get installed(): RuleList {
    return listInstalled(this.family, this.#options.datapath.maps, this.#tables.services);
  }

  /** See `FamilyTables.connections`; undefined before the first sync, which finds the Services of an earlier run. */
  get connections(): ReadonlyMap<ServiceKey, number> | undefined {
    return this.#isRead ? this.#tables.connections : undefined;
  }

  async sync(plan: FamilyPlan, touched: ReadonlySet<ServiceKey> | "all", stages: SyncStages): Promise<RuleChange> {
    this.#plan = plan;
    const committing = (): void => {
      // Until the end, the maps are between two records.
      writeRecord(this.#options.datapath.maps, this.family, "");
      stages.committing();
    };
    if (touched === "all") return this.#syncAll(plan, committing);
    const change = this.#tables.sync(plan, touched, committing);
    this.#endSockets(change);
    if (change.full !== undefined) throw change.full;
    this.#writeRecord(plan);
    return makeEbpfChange(this.family, "partial", { ...describeChange(change), shared: [] });
  }

  async repair(stages?: SyncStages): Promise<RuleChange> {
    if (this.#plan === undefined) throw new Error("repair before the first sync");
    return this.#syncAll(this.#plan, () => stages?.committing());
  }

  async isInstalled(): Promise<boolean> {
    return this.#options.datapath.isAttached;
  }

  async readInstalled(): Promise<InstalledState> {
    const { datapath } = this.#options;
    if (!datapath.isAttached) return { kind: "absent" };
    const record = readRecord(datapath.maps, this.family);
    return record === "" ? { kind: "unmarked" } : { kind: "marked", record };
  }

  /** Restores what does not depend on Services: settings of the node, programs, and the table of nftables. */
  async repairFrame({ node }: FamilyPlan, stages?: SyncStages): Promise<RuleChange> {
    const { datapath, localAddresses } = this.#options;
    const settings = datapath.useNode(node, localAddresses()[this.family]);
    const attached = await datapath.attach(this.family, () => stages?.committing());
    const counts = { written: 0, deleted: 0, members: 0 };
    return makeEbpfChange(this.family, "full", { frontends: [], counts, shared: [...settings, ...attached] });
  }

  async findDamage(): Promise<string | undefined> {
    const { datapath, mapSizes } = this.#options;
    const [first, length] = [this.family === "v4" ? 0 : mapSizes.maxFrontends, mapSizes.maxFrontends];
    const contents = datapath.maps.contents();
    const slots = contents.slots.subarray(first * sizes.slot, (first + length) * sizes.slot);
    return datapath.findMissingProgram() ?? findDamage(this.family, contents, slots);
  }

  async close(): Promise<void> {
    await this.#options.datapath.close();
  }

  async #syncAll(plan: FamilyPlan, committing: () => void): Promise<RuleChange> {
    const { datapath, localAddresses } = this.#options;
    // First: frontends that are published must not meet the settings of an earlier run.
    const shared = datapath.useNode(plan.node, localAddresses()[this.family]);
    const change = await this.#tables.syncAll(plan, committing);
    this.#isRead = true;
    const { full } = change;
    // An earlier run may serve more than the maps of this one have room for.
    if (full !== undefined && datapath.isAttached) throw full;
    const attached = await datapath.attach(this.family, committing);
    this.#endSockets(change);
    if (full !== undefined) throw full;
    this.#writeRecord(plan);
    return makeEbpfChange(this.family, "full", { ...describeChange(change), shared: [...shared, ...attached] });
  }

  #endSockets({ goneUdp }: TablesChange): void {
    this.#options.datapath.staleSockets.end(goneUdp, this.#tables.removeServed);
  }

  #writeRecord({ record = "" }: FamilyPlan): void {
    const { maps } = this.#options.datapath;
    if (readRecord(maps, this.family) !== record) writeRecord(maps, this.family, record);
  }
}

function describeChange({ described, written, deleted, members }: TablesChange) {
  const frontends: FrontendDifference[] = [
    ...described.map(({ wanted, isNew }) => ({
      place: describeKey(wanted.key),
      before: isNew ? undefined : `${describeKey(wanted.key)} with other routes`,
      after: describeFrontend(wanted),
    })),
    ...deleted
      .slice(0, maxDescribed)
      .map((key) => ({ place: describeKey(key), before: describeKey(key), after: undefined })),
  ];
  return { frontends, counts: { written, deleted: deleted.length, members } };
}

const recordKey = (family: Family): number => (family === "v4" ? 0 : 1);

function writeRecord(maps: EbpfMaps, family: Family, text: string): void {
  const value = Buffer.alloc(sizes.record);
  value.write(text);
  maps.get("records").set(recordKey(family), value);
}

function readRecord(maps: EbpfMaps, family: Family): string {
  const value = maps.get("records").get(recordKey(family)) ?? Buffer.alloc(1);
  return value.toString("latin1", 0, value.indexOf(0));
}
