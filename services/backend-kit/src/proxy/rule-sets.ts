import type { AddressSet, Family } from "@kpng/model/address.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import type { Log } from "@kpng/process/log.ts";
import type { ProxySettings } from "@kpng/service-plan/plan-node.ts";
import type { Registry } from "prom-client";
import type { InspectedRules } from "../inspect/backend-inspection.ts";
import { readLocalAddresses } from "../node-addresses/local-addresses.ts";
import type { SyncMode, SyncStages } from "../types/sync-update.ts";
import { ClashReport, FamilyPlanner, UnservedReport } from "./family-planner.ts";
import { noRules, type RuleChange, type RuleList, type RuleSet } from "./rule-set.ts";

interface RulesOutcomes {
  readonly inForce: readonly Family[];
  /** The first error of the other families. */
  readonly failure: Failure;
}

interface RuleSetsOptions<Change extends RuleChange> {
  readonly settings: ProxySettings;
  readonly ruleSets: readonly RuleSet<Change>[];
  readonly onOutcome: (outcome: FamilyOutcome<Change>) => void;
  readonly log: Log;
  readonly metrics?: Registry | undefined;
  /** Default: the addresses of this machine's interfaces. */
  readonly localAddresses?: (() => AddressSet) | undefined;
  /** Called before each repair and each sync of all Services, because these must not use an earlier reading. */
  readonly forgetAddresses?: (() => void) | undefined;
}

/**
 * The rule sets of a service proxy, one for each IP family.
 *
 * If one family fails, the other is still synced. Calls must not overlap; none rejects except {@link close}.
 */
export class RuleSets<Change extends RuleChange = RuleChange> {
  readonly #options: RuleSetsOptions<Change>;
  readonly #members: readonly FamilyRules<Change>[];
  readonly #clashes: ClashReport;
  readonly #unserved: UnservedReport;
  #view: NodeView | undefined;

  constructor(options: RuleSetsOptions<Change>) {
    const { ruleSets, localAddresses = readLocalAddresses } = options;
    this.#options = options;
    this.#clashes = new ClashReport(options.log, options.metrics);
    this.#unserved = new UnservedReport(options.log, options.metrics);
    this.#members = ruleSets.map((ruleSet) => new FamilyRules({ ...options, ruleSet, localAddresses }));
  }

  /**
   * Puts a view from a watcher into effect. `touched` contains the Services that may differ from the last view that all
   * families have installed; "all" also compares the installed rules with the desired ones.
   */
  sync(view: NodeView, touched: ReadonlySet<ServiceKey> | "all", stages: SyncStages): Promise<RulesOutcomes> {
    this.#view = view;
    if (touched === "all") this.#options.forgetAddresses?.();
    return this.#each((member) => member.sync(view, touched, stages));
  }

  /**
   * Uses a saved view until a watcher answers: installs it in families without rules in force, and in all families
   * after a reboot, because other programs may have restored rules from an earlier boot. Otherwise rules in force stay,
   * because they are at least as new as the saved view.
   */
  useSaved(view: NodeView, isAfterReboot: boolean, stages: SyncStages): Promise<RulesOutcomes> {
    this.#view = view;
    this.#options.forgetAddresses?.();
    return this.#each((member) => member.useSaved(view, isAfterReboot, stages));
  }

  /**
   * Repairs changes by other programs, and applies new addresses of the node. Returns undefined before the first view,
   * because there is nothing to compare with.
   */
  async repair(): Promise<RulesOutcomes | undefined> {
    const view = this.#view;
    if (view === undefined) return undefined;
    this.#options.forgetAddresses?.();
    return this.#each((member) => member.repair(view));
  }

  inspect(): readonly InspectedRules[] {
    return this.#members.map((member) => member.inspect());
  }

  async close(): Promise<void> {
    await Promise.all(this.#options.ruleSets.map((ruleSet) => ruleSet.close?.()));
  }

  async #each(work: (member: FamilyRules<Change>) => Promise<Failure>): Promise<RulesOutcomes> {
    const failures = await Promise.all(this.#members.map(work));
    this.#clashes.report(this.#members.flatMap(({ planner }) => planner.clashes));
    this.#unserved.report(new Set(this.#members.flatMap(({ planner }) => [...planner.unserved])));
    return {
      inForce: this.#members.filter((_, at) => failures[at] === undefined).map(({ family }) => family),
      failure: failures.find((failure) => failure !== undefined),
    };
  }
}

/** Reason for a rule change: the desired rules have changed, or the installed ones, by another program. */
type Cause = "sync" | "repair";

export interface FamilyOutcome<Change extends RuleChange = RuleChange> {
  readonly family: Family;
  readonly cause: Cause;
  readonly elapsedMs: number;
  readonly result:
    | { readonly kind: "done"; readonly change: Change }
    /** Rules from an earlier run were left in force, because no watcher has answered yet. */
    | { readonly kind: "kept" }
    /** `mode` says how much was compared. */
    | { readonly kind: "failed"; readonly error: unknown; readonly mode: SyncMode };
}

interface FamilyRulesOptions<Change extends RuleChange>
  extends Pick<RuleSetsOptions<Change>, "settings" | "onOutcome" | "log"> {
  readonly ruleSet: RuleSet<Change>;
  readonly localAddresses: () => AddressSet;
}

/** Undefined if the call succeeded. */
type Failure = { readonly cause: unknown } | undefined;

const noStages: SyncStages = { committing: () => undefined };

/** A rule set with its planner and what inspection shows of it. Calls must not overlap; none rejects. */
class FamilyRules<Change extends RuleChange = RuleChange> {
  readonly #options: FamilyRulesOptions<Change>;
  readonly planner: FamilyPlanner;
  /** How much the last call compared. */
  #mode: SyncMode = "full";
  #reportedOmitted: ReadonlyMap<ServiceKey, number> = new Map();
  /** True if the installed rules are those of the last call; false at the start and after a failure. */
  #areKnown = false;
  /** While the rules are not known: the call that failed first, whose changes are still to be made. */
  #failedCall: Cause = "sync";
  /** True while rules from an earlier run stay in force, because no watcher has answered yet. */
  #isKeeping = false;
  /** True once this process has begun to install rules; those in the kernel may then be half of a saved view. */
  #hasInstalled = false;
  #lastChanges: Pick<InspectedRules, "readAtMs" | "committedAtMs" | "drift" | "repairCount"> = {
    readAtMs: undefined,
    committedAtMs: undefined,
    drift: [],
    repairCount: 0,
  };

  constructor(options: FamilyRulesOptions<Change>) {
    this.#options = options;
    const { settings, ruleSet } = options;
    this.planner = new FamilyPlanner(settings, ruleSet.family, ruleSet.servesWholeAddresses === true);
  }

  get family(): Family {
    return this.#options.ruleSet.family;
  }

  inspect(): InspectedRules {
    const { family, desired = noRules, installed = noRules } = this.#options.ruleSet;
    return {
      ...this.#lastChanges,
      name: family,
      desiredCount: desired.count,
      installedCount: installed.count,
      desired: (service) => linesOf(desired, service),
      installed: (service) => linesOf(installed, service),
    };
  }

  #record(cause: Cause, change: Change): void {
    const last = this.#lastChanges;
    const isChanged = change.mode !== "none";
    const isRepair = cause === "repair";
    this.#lastChanges = {
      readAtMs: this.#mode === "full" ? Date.now() : last.readAtMs,
      committedAtMs: isChanged ? Date.now() : last.committedAtMs,
      drift: !isRepair ? last.drift : isChanged ? change.differences().map(({ summary }) => summary) : [],
      repairCount: last.repairCount + (isRepair && isChanged ? 1 : 0),
    };
  }

  /** See `RuleSets.sync`. */
  sync(view: NodeView, touched: ReadonlySet<ServiceKey> | "all", stages: SyncStages): Promise<Failure> {
    return this.#attempt("sync", async () => ({ cause: "sync", change: await this.#sync(view, touched, stages) }));
  }

  /** See `RuleSets.useSaved`. The next sync is a full one unless the saved view is installed. */
  useSaved(view: NodeView, isAfterReboot: boolean, stages: SyncStages): Promise<Failure> {
    const { ruleSet, log } = this.#options;
    return this.#attempt("sync", async () => {
      // Remains true if the kernel cannot be read now, so that the next check asks again.
      this.#isKeeping = !isAfterReboot && !this.#hasInstalled;
      this.#isKeeping &&= await ruleSet.isInstalled();
      log.info(this.#isKeeping ? "rules of an earlier run stay until a watcher answers" : "installing the saved view", {
        family: this.family,
      });
      return this.#isKeeping ? undefined : { cause: "sync", change: await this.#sync(view, "all", stages) };
    });
  }

  /** Undoes changes that other programs made to the rules. `view` is the view of the last sync. */
  repair(view: NodeView): Promise<Failure> {
    return this.#attempt("repair", async () => {
      // If the kept rules are gone, install the saved view.
      if (this.#isKeeping && (await this.#options.ruleSet.isInstalled())) return undefined;
      // Applies new addresses of the node (which make the sync a full one), work that is due, and the changes of a
      // failed sync; none of these is a repair. A full sync has also compared the installed rules; after a partial one
      // that changed something, the next check does.
      const cause = this.#isKeeping ? "repair" : this.#areKnown ? "sync" : this.#failedCall;
      const change = await this.#sync(view, new Set());
      if (this.#mode === "full" || change.mode !== "none") return { cause, change };
      this.#mode = "full";
      return { cause: "repair", change: await this.#options.ruleSet.repair() };
    });
  }

  async #sync(view: NodeView, services: ReadonlySet<ServiceKey> | "all", stages = noStages): Promise<Change> {
    const { localAddresses, log, ruleSet } = this.#options;
    this.#hasInstalled = true;
    this.#isKeeping = false;
    const { plan, touched } = await this.planner.plan(view, this.#areKnown ? services : "all", localAddresses());
    for (const [service, omitted] of this.planner.omitted) {
      if (this.#reportedOmitted.get(service) === omitted) continue;
      log.error("a Service has too many external IPs: some are not served", { family: this.family, service, omitted });
    }
    this.#reportedOmitted = new Map(this.planner.omitted);
    this.#mode = touched === "all" ? "full" : "partial";
    return ruleSet.sync(plan, touched, stages);
  }

  /** Runs a call and reports its outcome. `call` is the cause to report if `work` fails or keeps the rules. */
  async #attempt(
    call: Cause,
    work: () => Promise<{ readonly cause: Cause; readonly change: Change } | undefined>,
  ): Promise<Failure> {
    const startMs = performance.now();
    const report = (cause: Cause, result: FamilyOutcome<Change>["result"]): void =>
      this.#options.onOutcome({ family: this.family, cause, elapsedMs: performance.now() - startMs, result });
    try {
      const done = await work();
      // Kept rules stay unknown, so that the next sync compares everything.
      if (done === undefined) report(call, { kind: "kept" });
      else {
        this.#areKnown = true;
        this.#record(done.cause, done.change);
        report(done.cause, { kind: "done", change: done.change });
      }
      return undefined;
    } catch (error) {
      if (this.#areKnown) this.#failedCall = call;
      this.#areKnown = false;
      report(call, { kind: "failed", error, mode: this.#mode });
      return { cause: error };
    }
  }
}

function linesOf(rules: RuleList, service: ServiceKey | undefined): readonly string[] {
  if (service === undefined) return rules.lines();
  if (rules.linesOf !== undefined) return rules.linesOf(service);
  // Letters, digits, dashes and dots may continue a name, so the "ns/web" in "ns/web-1" must not match.
  const name = new RegExp(`(?<![\\w.-])${RegExp.escape(service)}(?![\\w.-])`);
  return rules.lines().filter((line) => name.test(line));
}
