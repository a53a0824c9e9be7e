import type { FamilyPlan, RuleChange, RuleList, RuleSet } from "@kpng/backend-kit/proxy/rule-set.ts";
import type { SyncMode } from "@kpng/backend-kit/types/sync-update.ts";
import type { AddressSet, Family } from "@kpng/model/address.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import type { Log } from "@kpng/process/log.ts";
import { describeKey, type KeyText, type MapSizes } from "../layout/layout.ts";
import {
  type DesiredFrontend,
  describeElement,
  describeFrontend,
  describeInstalled,
  makeEbpfChange,
} from "../tables/frontends.ts";
import type { Datapath } from "./datapath.ts";
import { FamilyTables, frontendsOf, type TablesChange } from "./family-tables.ts";
import type { EbpfMaps } from "./maps.ts";

/**
 * The rule set for sockets. Nothing depends on it, because the rules for packets serve every connection that it leaves
 * alone.
 */
export type SocketRules = Pick<RuleSet, "sync" | "repair" | "desired" | "installed">;

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
    const read = (): ReadonlyMap<KeyText, string> => describeInstalled(family, datapath.maps.contents());
    const lines = (services: readonly ServiceKey[], hasUnknown: boolean): readonly string[] => {
      const names = new Map(
        services.flatMap((service) => this.#frontendsOf(service)).map(({ key, name }) => [key, name]),
      );
      const shown = [...read()].filter(([key]) => hasUnknown || names.has(key));
      return shown.map(([key, line]) => `${line} # ${names.get(key) ?? "unknown"}`).sort();
    };
    return {
      count: () => read().size,
      lines: () => lines([...this.#tables.services.keys()], true),
      linesOf: (service) => lines([service], false),
    };
  }

  #frontendsOf(service: ServiceKey): readonly DesiredFrontend[] {
    return this.#plan === undefined ? [] : frontendsOf(this.#plan, service);
  }

  async sync(plan: FamilyPlan, touched: ReadonlySet<ServiceKey> | "all"): Promise<RuleChange> {
    this.#plan = plan;
    if (touched === "all") return this.#syncAll(plan);
    return this.#report("partial", this.#tables.sync(plan, touched), []);
  }

  async repair(): Promise<RuleChange> {
    if (this.#plan === undefined) throw new Error("repair before the first sync");
    return this.#syncAll(this.#plan);
  }

  async #syncAll(plan: FamilyPlan): Promise<RuleChange> {
    const { datapath, localAddresses, family } = this.#options;
    // Done first, because published frontends must not be used with the settings of an earlier run.
    const shared = datapath.useNode(plan.node, localAddresses()[family]);
    const change = await this.#tables.syncAll(plan);
    return this.#report("full", change, [...shared, ...datapath.attach()]);
  }

  /** Logs once that a map is full. This is not a failure, because the rules serve the missing frontends. */
  #report(mode: SyncMode, { frontends, counts }: TablesChange, shared: readonly string[]): RuleChange {
    const { family, mapSizes, log } = this.#options;
    const services = this.#tables.leftCount;
    if (services > 0 && !this.#isFull) {
      log.info("a map is full: rules serve the sockets of some Services; raise --max-frontends or --max-endpoints", {
        family,
        services,
        ...mapSizes,
      });
    }
    this.#isFull = services > 0;
    return makeEbpfChange(family, mode, { frontends, counts, shared });
  }
}

interface PrintedSocketsOptions {
  readonly family: Family;
  /** Maps of an earlier run; undefined if there are none. */
  readonly maps: EbpfMaps | undefined;
  /** Undefined for `--diff`. */
  readonly print: ((text: string) => void) | undefined;
  /** A line for each hook without a program. */
  readonly missingPrograms: readonly string[];
}

/**
 * Replaces `SocketRuleSet` with `--dry-run` and `--diff`. It compares the desired frontends with the frontends in the
 * maps, and writes nothing. It needs neither privileges nor programs.
 */
export class PrintedSockets implements SocketRules {
  readonly #options: PrintedSocketsOptions;
  /** The elements that the maps would have after the last sync, keyed by frontend. Undefined before the first sync. */
  #elements: ReadonlyMap<KeyText, string> | undefined;

  constructor(options: PrintedSocketsOptions) {
    this.#options = options;
  }

  async sync(plan: FamilyPlan, touched: ReadonlySet<ServiceKey> | "all"): Promise<RuleChange> {
    const { family, maps, print, missingPrograms } = this.#options;
    const before = this.#elements ?? (maps === undefined ? new Map() : describeInstalled(family, maps.contents()));
    const desired = [...plan.keys()].flatMap((service) => frontendsOf(plan, service));
    const elements = new Map(desired.map((frontend) => [frontend.key, describeElement(frontend)]));
    this.#elements = elements;
    const written = desired
      .filter(({ key }) => elements.get(key) !== before.get(key))
      .map((frontend) => ({
        place: describeKey(frontend.key),
        before: before.get(frontend.key),
        after: describeFrontend(frontend),
      }));
    const deleted = [...before]
      .filter(([key]) => !elements.has(key))
      .map(([key, element]) => ({ place: describeKey(key), before: element, after: undefined }));
    const frontends = [...written, ...deleted];
    for (const { before: old, after } of frontends) {
      print?.(`${old === undefined ? "" : `- ${old}\n`}${after === undefined ? "" : `+ ${after}\n`}`);
    }
    const counts = { written: written.length, deleted: deleted.length };
    const mode = touched === "all" ? "full" : "partial";
    return makeEbpfChange(family, mode, { frontends, counts, shared: missingPrograms });
  }

  async repair(): Promise<RuleChange> {
    const counts = { written: 0, deleted: 0 };
    return makeEbpfChange(this.#options.family, "full", { frontends: [], counts, shared: [] });
  }
}
