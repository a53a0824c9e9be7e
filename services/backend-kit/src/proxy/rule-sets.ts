import type { AddressSet, Family } from "@kpng/model/address.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import type { Log } from "@kpng/process/log.ts";
import type { ProxySettings } from "@kpng/service-plan/plan-node.ts";
import type { InspectedRules } from "../inspect/inspected-rules.ts";
import { readLocalAddresses } from "../node-addresses/local-addresses.ts";
import type { SyncMode, SyncStages } from "../types/sync-update.ts";
import { ClashLog } from "./clash-log.ts";
import { FamilyPlanner } from "./family-planner.ts";
import type { RuleChange, RuleSet } from "./rule-set.ts";
import { RuleSetHistory } from "./rule-set-history.ts";

/** Reason for a change of rules: the view changed, or another program had changed the rules. */
export type Cause = "sync" | "repair";

/** Outcome of one sync or repair of one family. */
export interface FamilyOutcome<Change extends RuleChange = RuleChange> {
  readonly family: Family;
  readonly cause: Cause;
  readonly elapsedMs: number;
  readonly result:
    | { readonly kind: "done"; readonly change: Change }
    /**
     * `mode` is how much was compared. `isDamaged`: a repair found changes of another program and could not undo them.
     */
    | { readonly kind: "failed"; readonly error: unknown; readonly mode: SyncMode; readonly isDamaged: boolean };
}

/** Outcome of a sync or repair of all families. */
export interface RulesOutcomes {
  /** Families whose rules are in force. */
  readonly inForce: readonly Family[];
  /** The first error of the other families; undefined if there is none. */
  readonly failure: { readonly cause: unknown } | undefined;
}

/** Options of {@link RuleSets}. */
export interface RuleSetsOptions<Change extends RuleChange> {
  readonly settings: ProxySettings;
  readonly ruleSets: readonly RuleSet<Change>[];
  readonly onOutcome: (outcome: FamilyOutcome<Change>) => void;
  readonly log: Log;
  /** Default: the addresses of this machine's interfaces. */
  readonly localAddresses?: (() => AddressSet) | undefined;
}

/** A rule set with its planner. */
interface Member<Change extends RuleChange> {
  readonly ruleSet: RuleSet<Change>;
  readonly planner: FamilyPlanner;
  readonly history: RuleSetHistory;
  /** How much the last call compared. */
  mode: SyncMode;
  /** The view that is in force; undefined before the first. */
  view: NodeView | undefined;
  /** Why the installed rules are unknown: at the start, and after a failure; undefined while they are known. */
  doubt: "start" | Cause | undefined;
}

/**
 * The rule sets of a service proxy, one for each IP family. `serveTask` and `diffTask` sync them; each family has its
 * own planner and history.
 *
 * If one family fails, the other is still synced. Calls of `sync` and `repair` must not overlap.
 */
export class RuleSets<Change extends RuleChange = RuleChange> {
  readonly #options: RuleSetsOptions<Change>;
  readonly #members: readonly Member<Change>[];
  readonly #clashes: ClashLog;
  #view: NodeView | undefined;

  constructor(options: RuleSetsOptions<Change>) {
    this.#options = options;
    this.#clashes = new ClashLog(options.log);
    this.#members = options.ruleSets.map((ruleSet) => ({
      ruleSet,
      planner: new FamilyPlanner(options.settings, ruleSet.family),
      history: new RuleSetHistory(ruleSet),
      mode: "full",
      view: undefined,
      doubt: "start",
    }));
  }

  /**
   * Puts a view into effect; never rejects. `touched` are the Services that may differ from the last view; "different":
   * find them out for each family, whose last successes may differ; "all": also compare the installed rules with the
   * wanted ones.
   */
  async sync(
    view: NodeView,
    touched: ReadonlySet<ServiceKey> | "different" | "all",
    progress: SyncStages,
  ): Promise<RulesOutcomes> {
    this.#view = view;
    const outcomes = await this.#each("sync", (member, stages) =>
      this.#syncOne(member, view, touched === "different" ? differentServices(member.view, view) : touched, {
        committing: () => {
          stages.committing();
          progress.committing();
        },
      }),
    );
    this.#clashes.report(this.#members.flatMap(({ planner }) => planner.clashes));
    return outcomes;
  }

  /**
   * Repairs changes by other programs, and applies new addresses of the node. Never rejects. Returns undefined before
   * the first sync, because there is nothing to compare with.
   */
  async repair(): Promise<RulesOutcomes | undefined> {
    const view = this.#view;
    if (view === undefined) return undefined;
    return this.#each("repair", async (member, stages) => {
      const change = await this.#syncOne(member, view, new Set(), stages);
      if (member.mode === "full" || change.mode !== "none") return change;
      member.mode = "full";
      return member.ruleSet.repair(stages);
    });
  }

  /** Returns true if rules of an earlier run are installed in all families. */
  async areInstalled(): Promise<boolean> {
    const each = await Promise.all(this.#members.map(({ ruleSet }) => ruleSet.isInstalled()));
    return each.length > 0 && each.every((isInstalled) => isInstalled);
  }

  /** Returns the state of each rule set for inspection. */
  inspect(): readonly InspectedRules[] {
    return this.#members.map(({ history }) => history.inspect());
  }

  /** Closes all rule sets at the end of the process. */
  async close(): Promise<void> {
    await Promise.all(this.#members.map(({ ruleSet }) => ruleSet.close?.()));
  }

  async #syncOne(
    member: Member<Change>,
    view: NodeView,
    services: ReadonlySet<ServiceKey> | "all",
    stages: SyncStages,
  ): Promise<Change> {
    const { localAddresses = readLocalAddresses } = this.#options;
    const { ruleSet, planner, doubt } = member;
    const { plan, touched } = await planner.plan(view, doubt === undefined ? services : "all", localAddresses());
    member.mode = touched === "all" ? "full" : "partial";
    return ruleSet.sync(plan, touched, stages);
  }

  async #each(
    cause: Cause,
    work: (member: Member<Change>, stages: SyncStages) => Promise<Change>,
  ): Promise<RulesOutcomes> {
    const failures = await Promise.all(this.#members.map((member) => this.#attempt(cause, member, work)));
    return {
      inForce: this.#members.filter((_, at) => failures[at] === undefined).map(({ ruleSet }) => ruleSet.family),
      failure: failures.find((failure) => failure !== undefined),
    };
  }

  /** Returns the failure of a member, if there is one. */
  async #attempt(
    cause: Cause,
    member: Member<Change>,
    work: (member: Member<Change>, stages: SyncStages) => Promise<Change>,
  ): Promise<RulesOutcomes["failure"]> {
    const { ruleSet, history } = member;
    const { family } = ruleSet;
    const startMs = performance.now();
    const report = (result: FamilyOutcome<Change>["result"]): void =>
      this.#options.onOutcome({ family, cause, elapsedMs: performance.now() - startMs, result });
    let hasFoundDifference = false;
    const stages = {
      committing: () => {
        hasFoundDifference = true;
      },
    };
    try {
      const change = await work(member, stages);
      // Only when the rules are in force is the sysctl safe.
      await ruleSet.guardedSysctl?.afterCommit();
      member.doubt = undefined;
      member.view = this.#view;
      history.add(cause, member.mode, change);
      report({ kind: "done", change });
      return undefined;
    } catch (error) {
      // After a sync that failed, a difference may be the change that it could not write.
      const isDamaged = cause === "repair" && hasFoundDifference && member.doubt !== "sync";
      if (member.doubt !== "sync") member.doubt = cause;
      report({ kind: "failed", error, mode: member.mode, isDamaged });
      return { cause: error };
    }
  }
}

/** Services that did not change are the same objects in both views. */
function differentServices(before: NodeView | undefined, after: NodeView): ReadonlySet<ServiceKey> | "all" {
  if (before === undefined) return "all";
  const keys = new Set([...before.services.keys(), ...after.services.keys()]);
  return new Set([...keys].filter((key) => before.services.get(key) !== after.services.get(key)));
}
