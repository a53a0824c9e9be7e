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
    /** `mode` is how much was compared. */
    | { readonly kind: "failed"; readonly error: unknown; readonly mode: SyncMode };
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
  /** True if the installed rules are unknown: at the start, and after a failure. */
  isInDoubt: boolean;
}

const noStages: SyncStages = { committing: () => undefined };

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
      isInDoubt: true,
    }));
  }

  /**
   * Puts a view into effect; "all" also compares the installed rules with the desired ones.
   *
   * Errors: that of the first family that failed, after both are done.
   */
  async sync(view: NodeView, touched: ReadonlySet<ServiceKey> | "all", stages: SyncStages): Promise<void> {
    this.#view = view;
    await this.#each("sync", (member) => this.#syncOne(member, view, touched, stages)).finally(() =>
      this.#clashes.report(this.#members.flatMap(({ planner }) => planner.clashes)),
    );
  }

  /** Repairs changes by other programs, and applies new addresses of the node. Does nothing before the first sync. */
  async repair(): Promise<void> {
    const view = this.#view;
    if (view === undefined) return;
    await this.#each("repair", async (member) => {
      const change = await this.#syncOne(member, view, new Set(), noStages);
      if (member.mode === "full" || change.mode !== "none") return change;
      member.mode = "full";
      return member.ruleSet.repair();
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
    const { ruleSet, planner, isInDoubt } = member;
    const { plan, touched } = await planner.plan(view, isInDoubt ? "all" : services, localAddresses());
    member.mode = touched === "all" ? "full" : "partial";
    return ruleSet.sync(plan, touched, stages);
  }

  async #each(cause: Cause, work: (member: Member<Change>) => Promise<Change>): Promise<void> {
    const results = await Promise.allSettled(
      this.#members.map(async (member) => {
        const { ruleSet, history } = member;
        const { family } = ruleSet;
        const startMs = performance.now();
        const report = (result: FamilyOutcome<Change>["result"]): void =>
          this.#options.onOutcome({ family, cause, elapsedMs: performance.now() - startMs, result });
        try {
          const change = await work(member);
          // The sysctl is safe only with the rules installed.
          await ruleSet.guardedSysctl?.afterCommit();
          member.isInDoubt = false;
          history.add(cause, member.mode, change);
          report({ kind: "done", change });
        } catch (error) {
          member.isInDoubt = true;
          report({ kind: "failed", error, mode: member.mode });
          throw error;
        }
      }),
    );
    for (const result of results) if (result.status === "rejected") throw result.reason;
  }
}
