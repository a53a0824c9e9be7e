import type { Family } from "@kpng/model/address.ts";
import type { ServiceView } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import type { LogFields } from "@kpng/process/log.ts";
import type { Clash } from "@kpng/service-plan/frontend-claims.ts";
import type { NodePlan, ServicePlan } from "@kpng/service-plan/service-plan.ts";
import type { GuardedSysctl } from "../sysctl/sysctls.ts";
import type { SyncMode, SyncStages } from "../types/sync-update.ts";

/**
 * Plan of one IP family: what a service proxy must do with packets to each Service. `FamilyPlanner` computes it from
 * the view, and a `RuleSet` translates it into rules.
 */
export interface FamilyPlan {
  readonly node: NodePlan;
  /** Text to store with the rules, from `formatRecord`; `RuleSet.readInstalled` returns it. Default: none. */
  readonly record?: string | undefined;
  /** Keys of all Services, ascending. */
  readonly keys: () => Iterable<ServiceKey>;
  /**
   * Returns the plan of a Service; undefined if the Service does not exist. Frontends that another Service answers at
   * are left out, so no two plans have the same frontend.
   *
   * *Cost:* the first call for a touched Service returns the plan that its claims were made from, which is then no
   * longer kept; every further call plans the Service again, in O(ports × endpoints).
   */
  readonly service: (key: ServiceKey) => ServicePlan | undefined;
  /**
   * Returns the Service as the view has it, for a backend that carries traffic itself: its annotations, and the
   * endpoints that only finish the flows they have. Kernel rules depend on neither, and the plan has neither.
   */
  readonly view?: ((key: ServiceKey) => ServiceView | undefined) | undefined;
}

/**
 * The rules of one IP family in one kernel mechanism, e.g. nftables: all that the kit knows of the mechanism.
 *
 * Calls of `sync` and `repair` never overlap; `isInstalled` may be called meanwhile. After a call that rejected, the
 * next one is a sync of all Services.
 */
export interface RuleSet<Change extends RuleChange = RuleChange> {
  readonly family: Family;
  /**
   * Installs a plan. Only Services in `touched` may differ from the last successful call; "all" also compares
   * everything with the kernel. `touched` is "all" whenever `plan.node` differs.
   *
   * Calls `stages.committing` before it changes the kernel, and not at all if there is nothing to change. For work that
   * is due later it requests a partial sync (`ProxyHost.requests`), whose `touched` may be empty.
   */
  sync(plan: FamilyPlan, touched: ReadonlySet<ServiceKey> | "all", stages: SyncStages): Promise<Change>;
  /**
   * Compares the installed rules with the rules of the last sync, and repairs them. Calls `stages.committing` when it
   * has found a difference and begins to repair it: if it rejects then, the rules are known to be damaged.
   */
  repair(stages?: SyncStages): Promise<Change>;
  /** Whether rules of an earlier run are in force; false for rules that end with their process. */
  isInstalled(): Promise<boolean>;
  /**
   * Returns the record of the rules that are installed, which {@link sync} stored with them (`FamilyPlan.record`).
   * Default: `isInstalled`, and no record.
   */
  readInstalled?(): Promise<InstalledState>;
  /**
   * Restores the jumps and the chains that do not depend on Services, because the rules of the Services may be newer
   * than any known plan. The next call is a sync of all Services. Default: nothing is restored.
   */
  repairFrame?(plan: FamilyPlan, stages?: SyncStages): Promise<Change>;
  /**
   * Returns a sign, as text, that packets to Services get lost, which can be seen without knowing which Services the
   * installed rules are for: e.g. a chain of a Service without rules. Undefined if there is none. Called for rules that
   * must not be repaired, because they may be newer than any known view. Default: no sign is known.
   */
  findDamage?(): Promise<string | undefined>;
  /**
   * Clashes beyond those that the plan leaves out, because they depend on the node's addresses: node ports that do not
   * answer at an address where another Service has their port. Each is logged once. Default: none.
   */
  readonly clashes?: readonly Clash[] | undefined;
  /** Rules of the last plan, for inspection. */
  readonly desired: RuleList;
  /** Rules that were read or committed last, for inspection. */
  readonly installed: RuleList;
  /** Sysctl to set after the rules are installed. Default: none. */
  readonly guardedSysctl?: Pick<GuardedSysctl, "afterCommit"> | undefined;
  /** Called at the end of the process: releases a lock, or removes rules that end with the process. */
  close?(): Promise<void>;
}

/** Rules for inspection, computed on request. */
export interface RuleList {
  readonly count: () => number;
  /** One rule per line, in a fixed order. */
  readonly lines: () => readonly string[];
  /** Rules that serve one Service, in the same form. Default: the lines that name it. */
  readonly linesOf?: (service: ServiceKey) => readonly string[];
}

/** Result of a sync or a repair. */
export interface RuleChange {
  /** "none" if no rule was changed. */
  readonly mode: SyncMode | "none";
  /** Size of the change, for the log. *Shape:* `{ chains: 3, example: "KPNG-SVC-XPGD46QRK7WJZT7O" }`. */
  readonly fields: LogFields;
  /** Start of the committed text, at most 64 KiB; "" if nothing was committed. */
  readonly transaction: string;
  /** Returns the rules that differed. Valid only until the next sync or repair. */
  readonly differences: () => readonly RuleDifference[];
}

/** A difference between installed and desired rules. */
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

/**
 * A record that a rule set stores with its rules, in the same transaction, so that it is lost with them. The next run
 * of the program reads it before it uses a saved view, the view that the previous run stored on disk. `FamilyRules`
 * writes it and compares it; rule sets that outlive their process store it as text.
 */
export interface RuleRecord {
  /** Boot in which the rules were committed; "" if it is unknown. */
  readonly bootId: string;
  /** Digest of the plans that the rules were made from; see `PlanDigest`. */
  readonly digest: string;
}

/** Returns a record as text. *Shape:* `boot=36c8f5e2-7d0e-4b52-9d6e-6d3f6b0c8f11,plans=8c6a3f0d12345678`. */
export function formatRecord({ bootId, digest }: RuleRecord): string {
  return `boot=${bootId},plans=${digest}`;
}

/** Parses the text of a record; undefined if it is not one. */
export function parseRecord(text: string): RuleRecord | undefined {
  const match = /^boot=([0-9a-f-]*),plans=([0-9a-f]{16})$/.exec(text);
  const [, bootId, digest] = match ?? [];
  return bootId === undefined || digest === undefined ? undefined : { bootId, digest };
}

/** The rules that a rule set finds installed, as far as the use of a saved view depends on them. */
export type InstalledState =
  /** No rules; or rules without a record that packets do not reach. */
  | { readonly kind: "absent" }
  /** Rules without a record that can be read, such as those of an older release. */
  | { readonly kind: "unmarked" }
  | { readonly kind: "marked"; readonly record: string };

/**
 * How a saved view is used in one family.
 *
 * - install: its rules replace whatever is installed.
 * - repair: its rules are those that were committed last; differences are changes by other programs.
 * - frame: the installed rules may be newer; only jumps and fixed chains are restored.
 * - keep: nothing is known about the installed rules; they stay as they are.
 */
export type SavedViewUse = "install" | "repair" | "frame" | "keep";

/**
 * Decides how a saved view is used. `saved` is the record that the rules of the saved view would have now. Pure. The
 * reasons are in docs/decisions/0035.
 */
export function chooseUse(installed: InstalledState, saved: RuleRecord): SavedViewUse {
  if (installed.kind === "absent") return "install";
  const record = installed.kind === "marked" ? parseRecord(installed.record) : undefined;
  if (record === undefined) return "keep";
  // The kernel has restarted since then, so another program has restored old rules.
  if (record.bootId !== saved.bootId) return "install";
  return record.digest === saved.digest ? "repair" : "frame";
}

/** Maximum length of the part of a transaction that is kept for inspection, in characters. */
export const maxTransactionLength = 64 * 1024;

/**
 * Returns the start of a committed text, at most {@link maxTransactionLength}, which a `RuleChange` keeps for
 * inspection. It is a copy: a substring would keep the whole text in memory, many megabytes after a full sync.
 *
 * The backends iptables, ipvs, userspace and ebpf share it; they call it where they make their `RuleChange`.
 * `makeNftChange` formats no more than that length and needs no copy.
 */
export function transactionStart(text: string): string {
  return Buffer.from(text.slice(0, maxTransactionLength)).toString();
}
