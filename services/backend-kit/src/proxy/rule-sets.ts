import type { AddressSet, Family } from "@kpng/model/address.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import type { Log } from "@kpng/process/log.ts";
import type { ProxySettings } from "@kpng/service-plan/plan-node.ts";
import type { Registry } from "prom-client";
import { readBootId } from "../disk/view-file.ts";
import type { InspectedRules } from "../inspect/backend-inspection.ts";
import { readLocalAddresses } from "../node-addresses/local-addresses.ts";
import type { SyncStages } from "../types/sync-update.ts";
import { ClashReport } from "./clash-report.ts";
import { type Failure, type FamilyOutcome, FamilyRules } from "./family-rules.ts";
import type { RuleChange, RuleSet } from "./rule-set.ts";

/** Outcome of a sync or repair of all families. */
export interface RulesOutcomes {
  /** Families whose rules are in force. */
  readonly inForce: readonly Family[];
  /** The first error of the other families; undefined if there is none. */
  readonly failure: Failure;
}

/** Options of {@link RuleSets}. */
export interface RuleSetsOptions<Change extends RuleChange> {
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
