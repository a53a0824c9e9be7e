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
import type { EbpfMaps } from "./maps.ts";
import type { SocketRules } from "./paired-rule-set.ts";

/** The Services that have frontends, and the number of these; `of` returns them. */
interface ListedServices {
  readonly services: ReadonlyMap<ServiceKey, readonly unknown[]>;
  readonly of: (service: ServiceKey) => readonly DesiredFrontend[];
}

/** Lists the frontends of Services for inspection (`kpng get rules`). */
export function listDesired({ services, of }: ListedServices): RuleList {
  const linesOf = (service: ServiceKey): readonly string[] => of(service).map(describeFrontend).sort();
  return {
    count: () => [...services.values()].reduce((sum, frontends) => sum + frontends.length, 0),
    lines: () => [...services.keys()].flatMap(linesOf).sort(),
    linesOf,
  };
}

/** Lists the frontends in the maps, each with its name from `services`. The counterpart of {@link listDesired}. */
export function listInstalled(family: Family, maps: EbpfMaps | undefined, { services, of }: ListedServices): RuleList {
  const installed = (): ReadonlyMap<string, string> =>
    maps === undefined ? new Map() : describeInstalled(family, maps.contents());
  const names = (of: readonly DesiredFrontend[]): ReadonlyMap<string, string> =>
    new Map(of.map(({ key, name }) => [key, name]));
  const lines = (known: ReadonlyMap<string, string>, isShown: (id: string) => boolean): readonly string[] =>
    [...installed()]
      .filter(([id]) => isShown(id))
      .map(([id, line]) => `${line} # ${known.get(id) ?? "unknown"}`)
      .sort();
  return {
    count: () => installed().size,
    lines: () => lines(names([...services.keys()].flatMap(of)), () => true),
    linesOf: (service) => {
      const known = names(of(service));
      return lines(known, (id) => known.has(id));
    },
  };
}

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
    datapath.addFamily(family);
  }

  get desired(): RuleList {
    return listDesired(this.#listed());
  }

  get installed(): RuleList {
    return listInstalled(this.#options.family, this.#options.datapath.maps, this.#listed());
  }

  #listed(): ListedServices {
    const plan = this.#plan;
    return { services: this.#tables.services, of: (service) => (plan === undefined ? [] : frontendsOf(plan, service)) };
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
    const attached = datapath.attach(this.#options.family, committing);
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
