import type { FamilyPlan, RuleChange, RuleList } from "@kpng/backend-kit/proxy/rule-set.ts";
import type { SyncStages } from "@kpng/backend-kit/types/sync-update.ts";
import type { AddressSet, Family } from "@kpng/model/address.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import type { Log } from "@kpng/process/log.ts";
import { describeKey, type MapSizes } from "../layout/layout.ts";
import {
  type DesiredFrontend,
  describeFrontend,
  describeInstalled,
  type FrontendDifference,
  makeEbpfChange,
  maxDescribed,
} from "../tables/frontends.ts";
import type { Datapath } from "./datapath.ts";
import { FamilyTables, frontendsOf, type TablesChange } from "./family-tables.ts";
import type { SocketRules } from "./paired-rule-set.ts";

/** Options of {@link SocketRuleSet}. */
interface SocketRuleSetOptions {
  readonly family: Family;
  readonly datapath: Datapath;
  readonly mapSizes: MapSizes;
  /** Returns the node's own addresses. */
  readonly localAddresses: () => AddressSet;
  readonly log: Log;
}

/** The frontends of one family in BPF maps, for sockets. */
export class SocketRuleSet implements SocketRules {
  readonly #options: SocketRuleSetOptions;
  readonly #tables: FamilyTables;
  #plan: FamilyPlan | undefined;
  #isFull = false;

  constructor(options: SocketRuleSetOptions) {
    const { family, datapath, mapSizes } = options;
    this.#options = options;
    this.#tables = new FamilyTables(family, datapath.maps, datapath.grace, mapSizes);
  }

  get desired(): RuleList {
    const { services } = this.#tables;
    const linesOf = (service: ServiceKey): readonly string[] => this.#frontendsOf(service).map(describeFrontend).sort();
    return {
      count: () => [...services.values()].reduce((sum, frontends) => sum + frontends.length, 0),
      lines: () => [...services.keys()].flatMap(linesOf).sort(),
      linesOf,
    };
  }

  /** The frontends in the maps, each with its name from the plan. */
  get installed(): RuleList {
    const { family, datapath } = this.#options;
    const read = (): ReadonlyMap<string, string> => describeInstalled(family, datapath.maps.contents());
    const namesOf = (services: readonly ServiceKey[]): ReadonlyMap<string, string> =>
      new Map(services.flatMap((service) => this.#frontendsOf(service)).map(({ key, name }) => [key, name]));
    const lines = (names: ReadonlyMap<string, string>, hasUnknown: boolean): readonly string[] =>
      [...read()]
        .filter(([key]) => hasUnknown || names.has(key))
        .map(([key, line]) => `${line} # ${names.get(key) ?? "unknown"}`)
        .sort();
    return {
      count: () => read().size,
      lines: () => lines(namesOf([...this.#tables.services.keys()]), true),
      linesOf: (service) => lines(namesOf([service]), false),
    };
  }

  #frontendsOf(service: ServiceKey): readonly DesiredFrontend[] {
    return this.#plan === undefined ? [] : frontendsOf(this.#plan, service);
  }

  async sync(plan: FamilyPlan, touched: ReadonlySet<ServiceKey> | "all", stages: SyncStages): Promise<RuleChange> {
    this.#plan = plan;
    const committing = (): void => stages.committing();
    if (touched === "all") return this.#syncAll(plan, committing);
    const change = this.#tables.sync(plan, touched, committing);
    this.#reportRoom();
    return makeEbpfChange(this.#options.family, "partial", { ...describeChange(change), shared: [] });
  }

  async repair(): Promise<RuleChange> {
    if (this.#plan === undefined) throw new Error("repair before the first sync");
    return this.#syncAll(this.#plan, () => undefined);
  }

  async #syncAll(plan: FamilyPlan, committing: () => void): Promise<RuleChange> {
    const { datapath, localAddresses } = this.#options;
    // Done first, because published frontends must not be used with the settings of an earlier run.
    const shared = datapath.useNode(plan.node, localAddresses()[this.#options.family]);
    const change = await this.#tables.syncAll(plan, committing);
    const attached = datapath.attach();
    this.#reportRoom();
    return makeEbpfChange(this.#options.family, "full", {
      ...describeChange(change),
      shared: [...shared, ...attached],
    });
  }

  /** Logs once that a map is full. This is not a failure, because the rules serve the missing frontends. */
  #reportRoom(): void {
    const { leftCount } = this.#tables;
    if (leftCount > 0 && !this.#isFull) {
      const { maxFrontends, maxEndpoints } = this.#options.mapSizes;
      this.#options.log.info(
        "a map is full: rules serve the sockets of some Services; raise --max-frontends or --max-endpoints",
        { family: this.#options.family, services: leftCount, maxFrontends, maxEndpoints },
      );
    }
    this.#isFull = leftCount > 0;
  }
}

function describeChange({ described, written, deleted }: TablesChange) {
  const frontends: FrontendDifference[] = [
    ...described.map(({ desired, isNew }) => ({
      place: describeKey(desired.key),
      before: isNew ? undefined : `${describeKey(desired.key)} with other routes`,
      after: describeFrontend(desired),
    })),
    ...deleted
      .slice(0, maxDescribed)
      .map((key) => ({ place: describeKey(key), before: describeKey(key), after: undefined })),
  ];
  return { frontends, counts: { written, deleted: deleted.length } };
}
