import type { AddressSet } from "@kpng/model/address.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import type { OptionSpec } from "@kpng/process/options.ts";
import type { Task } from "@kpng/process/task.ts";
import type { ProxySettings } from "@kpng/service-plan/plan-node.ts";
import type { Registry } from "prom-client";
import type { BackendContext } from "../backend/backend-command.ts";
import type { UdpListeners } from "../conntrack/udp-flows.ts";
import type { SyncRequests } from "../sync/sync-loop.ts";
import type { Sysctls } from "../sysctl/sysctls.ts";
import type { ParsedOptions } from "../types/parsed-options.ts";
import type { RuleChange, RuleSet } from "./rule-set.ts";
import type { FamilyOutcome } from "./rule-sets.ts";

/**
 * Description of a service proxy, which its backend passes to `proxyBackend`. A backend implements the interfaces of
 * this file and `RuleSet`; the rest of this folder is the same for all backends.
 */
export interface ProxySpec<Change extends RuleChange = RuleChange> {
  /** Lower-case letters; e.g. "iptables" for `kpng-iptables` and `to-iptables`. */
  readonly name: string;
  /** KPNG's names of the backend, where they differ. Default: none. */
  readonly aliases?: readonly string[] | undefined;
  /** kube-proxy's name of the mode, for /proxyMode, `--config` and `--MODE-sync-period`. */
  readonly proxyMode: string;
  readonly description: string;
  /** Shown below the options; `COMMAND` stands for the words that start the backend. */
  readonly examples: string;
  /** Options that only this backend has. */
  readonly options: readonly OptionSpec[];
  /** Node-port addresses if `--nodeport-addresses` is not given, as in kube-proxy's mode. Default: all. */
  readonly defaultNodePortAddresses?: "primary" | undefined;
  /**
   * False if another process cannot read the installed state, because it exists only in the serving process: then the
   * backend has no `--diff`. Default true.
   */
  readonly canDiff?: boolean | undefined;
  /** Other ways to run the program, each selected by an option. */
  readonly alternatives?: readonly ProxyAlternative[] | undefined;
  /** Returns the proxy for parsed options. Errors: BAD_OPTION. */
  makeProxy(options: ParsedOptions, serviceProxyName: string): ServiceProxy<Change>;
}

/** A configured service proxy: opens its rules on this node, or removes them. */
export interface ServiceProxy<Change extends RuleChange = RuleChange> {
  /** True if node ports should answer on 127.0.0.0/8, provided that the node-port addresses include it. */
  readonly wantsLoopbackNodePorts: boolean;
  /**
   * True if the process carries the traffic itself: then conntrack is left alone, unless there are
   * `OpenRuleSets.udpListeners`. Health fails until the first sync, because no rules of an
   * earlier run serve. Default false.
   */
  readonly carriesTraffic?: boolean | undefined;
  /**
   * Opens a rule set for each IP family that the node supports, IPv4 first. Rejects if the node does not support such
   * rules at all, so that a retry would not help.
   */
  openRuleSets(host: ProxyHost): Promise<OpenRuleSets<Change>>;
  /** Removes everything that this backend ever installed under its names. Errors: those of the backend. */
  cleanUp(host: ProxyHost): Promise<void>;
}

/** Result of `ServiceProxy.openRuleSets`. */
export interface OpenRuleSets<Change extends RuleChange> {
  readonly ruleSets: readonly RuleSet<Change>[];
  /** Called after each sync and repair of a family, for the backend's own metrics. */
  readonly onOutcome?: ((outcome: FamilyOutcome<Change>) => void) | undefined;
  /**
   * Returns the listeners to which conntrack leads UDP clients, from a proxy that carries the traffic itself. Stale
   * flows are deleted then, too. Default: conntrack is left alone by such a proxy.
   */
  readonly udpListeners?: (() => UdpListeners) | undefined;
}

/** A way to run a proxy other than serving, e.g. a step of a move to another proxy. */
export interface ProxyAlternative {
  /** Key of the option that selects it in `ParsedOptions`. *Shape:* `cleanupKubeProxy` for `--cleanup-kube-proxy`. */
  readonly name: string;
  /** The selecting option first, then options that apply to this run only. */
  readonly options: readonly [OptionSpec, ...OptionSpec[]];
  /** Returns the task of this run. */
  makeTask(options: ParsedOptions, settings: ProxySettings, context: BackendContext): Task;
}

/**
 * Destination of the changes of a run.
 *
 * - kernel: they are committed.
 * - print: `--dry-run`, each transaction is printed.
 * - nowhere: `--diff` and other runs that only compare.
 */
export type Destination =
  | { readonly kind: "kernel" }
  | { readonly kind: "print"; readonly print: (text: string) => void }
  | { readonly kind: "nowhere" };

/** Settings and services of a run. */
export interface ProxyHost {
  readonly destination: Destination;
  readonly settings: ProxySettings;
  readonly sysctls: Sysctls;
  /** Returns the node's own addresses, without those of Services, as of the last reading; see `RecentAddresses`. */
  readonly localAddresses: () => AddressSet;
  /** Makes `localAddresses` read them again. */
  readonly forgetAddresses: () => void;
  /** Accepts requests of a rule set, such as a partial sync for work that is due later. */
  readonly requests: SyncRequests;
  readonly log: Log;
  readonly metrics: Registry;
}

/**
 * Failures of a cleanup, which does all that it can: each failure is logged at once, and the first one is the result.
 * One tool that fails must not keep the rest installed.
 */
export class CleanupFailures {
  readonly #log: Log;
  readonly #errors: unknown[] = [];

  constructor(log: Log) {
    this.#log = log;
  }

  /** Runs a step. Returns its result; undefined if it failed. */
  async attempt<Result>(step: () => Promise<Result>): Promise<Result | undefined> {
    try {
      return await step();
    } catch (error) {
      this.add(error);
      return undefined;
    }
  }

  /** Adds a failure. */
  add(error: unknown): void {
    this.#log.error("cleanup is not complete", { reason: reasonOf(error) });
    this.#errors.push(error);
  }

  /** Throws the first failure, if there is any. Call it after the last step. */
  end(): void {
    if (this.#errors.length > 0) throw this.#errors[0];
  }
}
