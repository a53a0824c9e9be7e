import type { Family } from "@kpng/model/address.ts";
import type { ServiceView } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import type { LogFields } from "@kpng/process/log.ts";
import type { NodePlan, ServicePlan } from "@kpng/service-plan/service-plan.ts";
import type { SyncMode, SyncStages } from "../types/sync-update.ts";

export interface FamilyPlan {
  readonly node: NodePlan;
  /** Keys of all Services, ascending. */
  readonly keys: () => Iterable<ServiceKey>;
  /**
   * Returns the plan of a Service; undefined if the Service does not exist. Frontends at which another Service answers
   * are left out, so no two plans have the same frontend.
   *
   * *Cost:* O(ports × endpoints) for each call.
   */
  readonly service: (key: ServiceKey) => ServicePlan | undefined;
  /**
   * Returns the Service as it is in the view. Unlike the plan, the view includes endpoints that are only finishing
   * existing flows: userspace and ipvs must keep these flows alive themselves, because conntrack does not do so for
   * them. Default: only the plan's endpoints.
   */
  readonly view?: ((key: ServiceKey) => ServiceView | undefined) | undefined;
}

/**
 * The rules of one IP family in one kernel mechanism, e.g. nftables: this interface is all that the kit knows about the
 * mechanism.
 *
 * Calls of `sync`, `repair` and `isInstalled` never overlap. If a call rejects, the next sync is one of all Services.
 */
export interface RuleSet<Change extends RuleChange = RuleChange> {
  readonly family: Family;
  /**
   * True if the rules serve `ServicePlan.whole`: all ports and protocols of an address. Otherwise plans come without it,
   * and Services that ask for it are reported as not served. Default false.
   */
  readonly servesWholeAddresses?: boolean | undefined;
  /**
   * Installs a plan. Only Services in `touched` may differ from the last successful call; "all" also compares
   * everything with the kernel. `touched` is "all" whenever `plan.node` differs.
   *
   * Calls `stages.committing` before it writes rules, and not at all if there is nothing to write. For work that is due
   * later, it requests a partial sync (`ProxyHost.requests`), whose `touched` may be empty.
   */
  sync(plan: FamilyPlan, touched: ReadonlySet<ServiceKey> | "all", stages: SyncStages): Promise<Change>;
  /** Compares the installed rules with the rules of the last sync, and repairs them. */
  repair(): Promise<Change>;
  /**
   * Returns whether packets to Services reach installed rules, either from this run or from an earlier one. False for
   * rules that end with their process. While no watcher answers, the saved view is installed only if the result is
   * false.
   */
  isInstalled(): Promise<boolean>;
  /** The rules for the last plan, for inspection. Default: none. */
  readonly desired?: RuleList | undefined;
  /** The rules that were last read or committed, for inspection. Default: none. */
  readonly installed?: RuleList | undefined;
  /** Called at the end of the process: closes sockets, or removes rules that end with the process. */
  close?(): Promise<void>;
}

/** Rules for inspection, computed on request. */
export interface RuleList {
  readonly count: () => number;
  /** One rule per line, in a fixed order. */
  readonly lines: () => readonly string[];
  /** Rules that serve one Service, in the same form. Default: the lines that name the Service. */
  readonly linesOf?: (service: ServiceKey) => readonly string[];
}

export const noRules: RuleList = { count: () => 0, lines: () => [] };

export interface RuleChange {
  /** "none" if no rule was changed. */
  readonly mode: SyncMode | "none";
  /** Size of the change, for the log. *Shape:* `{ chains: 3, example: "KPNG-SVC-XPGD46QRK7WJZT7O" }`. */
  readonly fields: LogFields;
  /** Returns the rules that differed. Valid only until the next sync or repair. */
  readonly differences: () => readonly RuleDifference[];
}

export interface RuleDifference {
  /** *Shape:* `nat KPNG-SERVICES: rules differ`. */
  readonly summary: string;
  /** Desired rules that are not installed. */
  readonly missing: readonly string[];
  /** Installed rules that are not desired. */
  readonly unwanted: readonly string[];
  /** The place and kind of the difference, for `--output json`. *Shape:* `{ table: "nat", chain: "KPNG-SERVICES" }`. */
  readonly fields: Readonly<Record<string, string>>;
}
