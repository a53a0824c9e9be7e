import type { AddressSet, Family } from "@kpng/model/address.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import type { Log } from "@kpng/process/log.ts";
import type { Clash } from "@kpng/service-plan/frontend-claims.ts";
import type { ProxySettings } from "@kpng/service-plan/plan-node.ts";
import type { Registry } from "prom-client";
import { readBootId } from "../disk/view-file.ts";
import type { InspectedRules } from "../inspect/backend-inspection.ts";
import { readLocalAddresses } from "../node-addresses/local-addresses.ts";
import { BackendError } from "../types/backend-error.ts";
import type { SyncMode, SyncStages } from "../types/sync-update.ts";
import { ClashReport, FamilyPlanner, type PlanUpdate } from "./family-planner.ts";
import {
  chooseUse,
  formatRecord,
  type InstalledState,
  type RuleChange,
  type RuleList,
  type RuleSet,
  type SavedViewUse,
} from "./rule-set.ts";

/** Outcome of a sync or repair of all families. */
interface RulesOutcomes {
  /** Families whose rules are in force. */
  readonly inForce: readonly Family[];
  /** The first error of the other families; undefined if there is none. */
  readonly failure: Failure;
}

/** Options of {@link RuleSets}. */
interface RuleSetsOptions<Change extends RuleChange> {
  readonly settings: ProxySettings;
  readonly ruleSets: readonly RuleSet<Change>[];
  readonly onOutcome: (outcome: FamilyOutcome<Change>) => void;
  readonly log: Log;
  /** Default: no metrics. */
  readonly metrics?: Registry | undefined;
  /** Default: the addresses of this machine's interfaces. */
  readonly localAddresses?: (() => AddressSet) | undefined;
  /** Called before each repair and each sync except one of given Services: they must not use an earlier reading. */
  readonly forgetAddresses?: (() => void) | undefined;
  /** Default: that of this machine. */
  readonly bootId?: string | undefined;
}

/**
 * The rule sets of a service proxy, one for each IP family. `serveTask` and `diffTask` sync them.
 *
 * If one family fails, the other is still synced. Calls must not overlap; none rejects.
 */
export class RuleSets<Change extends RuleChange = RuleChange> {
  readonly #ruleSets: readonly RuleSet<Change>[];
  readonly #members: readonly FamilyRules<Change>[];
  readonly #clashes: ClashReport;
  readonly #forgetAddresses: () => void;
  /** The newest view. */
  #view: NodeView | undefined;
  /** Whether `#view` is a saved view, because no watcher has answered yet. */
  #isSaved = false;

  constructor(options: RuleSetsOptions<Change>) {
    const { ruleSets, localAddresses = readLocalAddresses, bootId = readBootId() } = options;
    this.#ruleSets = ruleSets;
    this.#forgetAddresses = options.forgetAddresses ?? (() => undefined);
    this.#clashes = new ClashReport(options.log, options.metrics);
    this.#members = ruleSets.map((ruleSet) => new FamilyRules({ ...options, ruleSet, localAddresses, bootId }));
  }

  /**
   * Puts a view of a watcher into effect. `touched` are the Services that may differ from the last view that all
   * families have; "all": also compare the installed rules with the desired ones.
   */
  sync(view: NodeView, touched: ReadonlySet<ServiceKey> | "all", progress: SyncStages): Promise<RulesOutcomes> {
    this.#view = view;
    this.#isSaved = false;
    if (touched === "all") this.#forgetAddresses();
    return this.#each((member) => member.sync(view, touched, progress));
  }

  /** Uses a saved view as far as the installed rules of each family allow; see `FamilyRules.useSaved`. */
  useSaved(view: NodeView, progress: SyncStages): Promise<RulesOutcomes> {
    this.#view = view;
    this.#isSaved = true;
    this.#forgetAddresses();
    return this.#each((member) => member.useSaved(view, "sync", progress));
  }

  /** Families in which the rules of the saved view had been committed in this boot when it was loaded. */
  get savedInForce(): readonly Family[] {
    return this.#members.filter(({ savedUse }) => savedUse === "repair").map(({ family }) => family);
  }

  /**
   * Repairs changes by other programs, and applies new addresses of the node. Returns undefined before the first view,
   * because there is nothing to compare with.
   */
  async repair(): Promise<RulesOutcomes | undefined> {
    const view = this.#view;
    if (view === undefined) return undefined;
    const isSaved = this.#isSaved;
    this.#forgetAddresses();
    return this.#each((member) => (isSaved ? member.useSaved(view, "repair") : member.repair(view)));
  }

  /** Returns the state of each rule set for inspection. */
  inspect(): readonly InspectedRules[] {
    return this.#members.map((member) => member.inspect());
  }

  /** Closes all rule sets at the end of the process. */
  async close(): Promise<void> {
    await Promise.all(this.#ruleSets.map((ruleSet) => ruleSet.close?.()));
  }

  async #each(work: (member: FamilyRules<Change>) => Promise<Failure>): Promise<RulesOutcomes> {
    const failures = await Promise.all(this.#members.map(work));
    this.#clashes.report(this.#members.flatMap(({ clashes }) => clashes));
    return {
      inForce: this.#members.filter((_, at) => failures[at] === undefined).map(({ family }) => family),
      failure: failures.find((failure) => failure !== undefined),
    };
  }
}

/** Reason for a change of rules: the view changed, or another program had changed the rules. */
export type Cause = "sync" | "repair";

/** Outcome of one sync or repair of one family. */
export interface FamilyOutcome<Change extends RuleChange = RuleChange> {
  readonly family: Family;
  readonly cause: Cause;
  readonly elapsedMs: number;
  readonly result:
    | { readonly kind: "done"; readonly change: Change }
    /** The installed rules were left alone, and no damage was found. */
    | { readonly kind: "kept" }
    /**
     * `mode` is how much was compared. `isDamaged`: the installed rules are known to be wrong and could not be
     * repaired.
     */
    | { readonly kind: "failed"; readonly error: unknown; readonly mode: SyncMode; readonly isDamaged: boolean };
}

/** Options of {@link FamilyRules}. */
interface FamilyRulesOptions<Change extends RuleChange> {
  readonly settings: ProxySettings;
  readonly ruleSet: RuleSet<Change>;
  readonly onOutcome: (outcome: FamilyOutcome<Change>) => void;
  readonly log: Log;
  readonly localAddresses: () => AddressSet;
  /** Identifier of the current boot; see `readBootId`. */
  readonly bootId: string;
}

/** The error of a call that failed; undefined if it did not. */
export type Failure = { readonly cause: unknown } | undefined;

/** Work of one call: returns the change, or undefined if the installed rules were left alone. */
type Work<Change> = (stages: SyncStages) => Promise<Change | undefined>;

/**
 * The rules of one IP family of a service proxy: a rule set with its planner and its history. Calls must not overlap;
 * none rejects.
 */
export class FamilyRules<Change extends RuleChange = RuleChange> {
  readonly #options: FamilyRulesOptions<Change>;
  readonly #planner: FamilyPlanner;
  readonly #history: RuleSetHistory;
  /** How much the last call compared. */
  #mode: SyncMode = "full";
  #reportedOmitted: ReadonlyMap<ServiceKey, number> = new Map();
  /** Why the installed rules are unknown: at the start, and after a failure; undefined while they are known. */
  #doubt: "start" | Cause | undefined = "start";
  #savedUse: SavedViewUse | undefined;

  constructor(options: FamilyRulesOptions<Change>) {
    this.#options = options;
    this.#planner = new FamilyPlanner(options.settings, options.ruleSet.family);
    this.#history = new RuleSetHistory(options.ruleSet);
  }

  get family(): Family {
    return this.#options.ruleSet.family;
  }

  get clashes(): readonly Clash[] {
    return [...this.#planner.clashes, ...(this.#options.ruleSet.clashes ?? [])];
  }

  /** How the saved view was used at first; undefined if none was. */
  get savedUse(): SavedViewUse | undefined {
    return this.#savedUse;
  }

  inspect(): InspectedRules {
    return this.#history.inspect();
  }

  /**
   * Puts a view into effect. `touched` are the Services that may differ from the view in force; "all": every Service,
   * and the installed rules are compared as well.
   */
  sync(view: NodeView, touched: ReadonlySet<ServiceKey> | "all", progress: SyncStages): Promise<Failure> {
    return this.#attempt("sync", progress, (stages) => this.#sync(view, touched, stages));
  }

  /** Undoes changes that other programs made to the rules. `view` is that of the last sync. */
  repair(view: NodeView): Promise<Failure> {
    return this.#attempt("repair", undefined, async (stages) => {
      const change = await this.#sync(view, new Set(), stages);
      if (this.#mode === "full" || change.mode !== "none") return change;
      this.#mode = "full";
      return this.#options.ruleSet.repair(stages);
    });
  }

  /**
   * Uses the view that the previous run saved on disk, as far as the installed rules allow; {@link chooseUse} decides.
   * Unless its rules are in force afterwards, the next sync compares everything. Damage that must not be repaired is
   * reported as RULES_DAMAGED. It is a failure of a repair but not of a sync: after a failed sync, the sync loop would
   * wait before it takes the view of a watcher, and that view is what ends the damage.
   */
  async useSaved(view: NodeView, cause: Cause, progress?: SyncStages): Promise<Failure> {
    let use: SavedViewUse = "keep";
    const failure = await this.#attempt(cause, progress, async (stages) => {
      const { ruleSet, log, bootId } = this.#options;
      const { plan } = await this.#plan(view, "all");
      const installed = await readInstalled(ruleSet);
      use = chooseUse(installed, { bootId, digest: this.#planner.digest });
      if (this.#savedUse === undefined)
        log.info("saved view compared with the installed rules", { family: this.family, use });
      this.#savedUse ??= use;
      this.#mode = "full";
      if (use === "install" || use === "repair") return ruleSet.sync(plan, "all", stages);
      const change = use === "frame" ? await ruleSet.repairFrame?.(plan, stages) : undefined;
      const damage = await ruleSet.findDamage?.();
      if (damage !== undefined) throw rulesDamaged(damage);
      return change;
    });
    if (failure === undefined && (use === "keep" || use === "frame")) this.#doubt = "start";
    return cause === "sync" && isDamage(failure?.cause) ? undefined : failure;
  }

  async #sync(view: NodeView, services: ReadonlySet<ServiceKey> | "all", stages: SyncStages): Promise<Change> {
    const { plan, touched } = await this.#plan(view, this.#doubt === undefined ? services : "all");
    this.#mode = touched === "all" ? "full" : "partial";
    return this.#options.ruleSet.sync(plan, touched, stages);
  }

  async #plan(view: NodeView, services: ReadonlySet<ServiceKey> | "all"): Promise<PlanUpdate> {
    const { localAddresses, bootId, log } = this.#options;
    const { plan, touched } = await this.#planner.plan(view, services, localAddresses());
    for (const [service, omitted] of this.#planner.omitted) {
      if (this.#reportedOmitted.get(service) === omitted) continue;
      log.error("a Service has too many external IPs: some are not served", { family: this.family, service, omitted });
    }
    this.#reportedOmitted = new Map(this.#planner.omitted);
    return { plan: { ...plan, record: formatRecord({ bootId, digest: this.#planner.digest }) }, touched };
  }

  async #attempt(cause: Cause, progress: SyncStages | undefined, work: Work<Change>): Promise<Failure> {
    const { ruleSet, onOutcome } = this.#options;
    const { family } = ruleSet;
    const startMs = performance.now();
    const report = (result: FamilyOutcome<Change>["result"]): void =>
      onOutcome({ family, cause, elapsedMs: performance.now() - startMs, result });
    let hasFoundDifference = false;
    const committing = (): void => {
      hasFoundDifference = true;
      progress?.committing();
    };
    try {
      const change = await work({ committing });
      this.#doubt = undefined;
      if (change === undefined) {
        report({ kind: "kept" });
        return undefined;
      }
      // The sysctl is safe only with the rules installed.
      await ruleSet.guardedSysctl?.afterCommit();
      this.#history.add(cause, this.#mode, change);
      report({ kind: "done", change });
      return undefined;
    } catch (error) {
      // After a sync that failed, a difference may be the change that it could not write.
      const isUnrepaired = cause === "repair" && hasFoundDifference && this.#doubt !== "sync";
      const isDamaged = isUnrepaired || isDamage(error);
      if (this.#doubt !== "sync") this.#doubt = cause;
      report({ kind: "failed", error, mode: this.#mode, isDamaged });
      return { cause: error };
    }
  }
}

function rulesDamaged(damage: string): BackendError {
  const text = `the installed rules are damaged (${damage}), and the saved view may be older than they are: waiting for a watcher`;
  return new BackendError("RULES_DAMAGED", text);
}

function isDamage(error: unknown): boolean {
  return error instanceof BackendError && error.code === "RULES_DAMAGED";
}

async function readInstalled(ruleSet: RuleSet): Promise<InstalledState> {
  if (ruleSet.readInstalled !== undefined) return ruleSet.readInstalled();
  return { kind: (await ruleSet.isInstalled()) ? "unmarked" : "absent" };
}

/** Records the changes of a rule set, which `kpng get rules` shows (`--inspect-socket`). */
class RuleSetHistory {
  readonly #ruleSet: Pick<RuleSet, "family" | "desired" | "installed">;
  #readAtMs: number | undefined;
  #committedAtMs: number | undefined;
  #lastTransaction = "";
  #drift: readonly string[] = [];
  #repairCount = 0;

  constructor(ruleSet: Pick<RuleSet, "family" | "desired" | "installed">) {
    this.#ruleSet = ruleSet;
  }

  /** Adds a successful change; `mode` is how much was compared. */
  add(cause: "sync" | "repair", mode: SyncMode, change: RuleChange): void {
    const isChanged = change.mode !== "none";
    if (mode === "full") this.#readAtMs = Date.now();
    if (isChanged) {
      this.#committedAtMs = Date.now();
      this.#lastTransaction = change.transaction;
    }
    if (cause === "sync") return;
    this.#drift = isChanged ? change.differences().map(({ summary }) => summary) : [];
    if (isChanged) this.#repairCount++;
  }

  /** Returns the current state for inspection. */
  inspect(): InspectedRules {
    const { family, desired, installed } = this.#ruleSet;
    return {
      name: family,
      desiredCount: desired.count,
      actualCount: installed.count,
      desired: (service) => linesOf(desired, service),
      actual: (service) => linesOf(installed, service),
      readAtMs: this.#readAtMs,
      lastTransaction: this.#lastTransaction,
      committedAtMs: this.#committedAtMs,
      drift: this.#drift,
      repairCount: this.#repairCount,
    };
  }
}

function linesOf(rules: RuleList, service: ServiceKey | undefined): readonly string[] {
  if (service === undefined) return rules.lines();
  if (rules.linesOf !== undefined) return rules.linesOf(service);
  // Letters, digits, dashes and dots may continue a name: "ns/web" is not a part of "ns/web-1".
  const name = new RegExp(`(?<![\\w.-])${RegExp.escape(service)}(?![\\w.-])`);
  return rules.lines().filter((line) => name.test(line));
}
