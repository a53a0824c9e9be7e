import type { AddressSet } from "@kpng/model/address.ts";
import type { Log } from "@kpng/process/log.ts";
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
 * Description of a service proxy, which its backend passes to `proxyBackend`. A backend implements the interfaces in
 * this file and `RuleSet`; the rest of this folder is the same for all backends.
 */
export interface ProxySpec<Change extends RuleChange = RuleChange> {
  /** Lower-case letters, e.g. "iptables" for `kpng-iptables` and `to-iptables`. */
  readonly name: string;
  /** KPNG's names for the backend, where they differ. Default: none. */
  readonly aliases?: readonly string[] | undefined;
  /**
   * kube-proxy's name for the mode, or our own name if kube-proxy has no such mode ("ebpf"). Used in /proxyMode and
   * `--config`, and for the names of options such as `--nftables-sync-period` (`optionPrefix`).
   */
  readonly proxyMode: string;
  /** Port for health on 127.0.0.1 by default; different for each backend, so that several can run on a node. */
  readonly healthPort?: number | undefined;
  readonly description: string;
  /** Shown below the options in help; `COMMAND` stands for the words that start the backend. */
  readonly examples: string;
  readonly options: readonly OptionSpec[];
  /** Default of `--nodeport-addresses`, as in kube-proxy's mode; undefined means all addresses. */
  readonly defaultNodePortAddresses?: "primary" | undefined;
  /**
   * False if another process cannot read the installed state, because that state exists only in the serving process;
   * the backend then has no `--diff`. Default true.
   */
  readonly canDiff?: boolean | undefined;
  readonly alternatives?: readonly ProxyAlternative[] | undefined;
  /** Returns the proxy for parsed options. Errors: BAD_OPTION. */
  makeProxy(options: ParsedOptions, serviceProxyName: string): ServiceProxy<Change>;
}

/** A configured service proxy: opens its rules on this node, or removes them. */
export interface ServiceProxy<Change extends RuleChange = RuleChange> {
  /** True if node ports should answer on 127.0.0.0/8, provided that the node-port addresses include it. */
  readonly wantsLoopbackNodePorts: boolean;
  /**
   * True if the process carries the traffic itself. Conntrack is then left alone unless `OpenRuleSets.udpListeners` is
   * given, and health fails until the first sync, because no rules from an earlier run are in force. Default false.
   */
  readonly carriesTraffic?: boolean | undefined;
  /**
   * Opens a rule set for each IP family that the node supports, IPv4 first. Rejects if the node does not support such
   * rules at all, so that a retry would not help.
   */
  openRuleSets(host: ProxyHost): Promise<OpenRuleSets<Change>>;
  /** Removes everything that this backend ever installed under its names. Errors: the backend's own. */
  cleanUp(host: ProxyHost): Promise<void>;
}

/** A run of a service proxy. */
export interface ProxyRun<Change extends RuleChange = RuleChange> {
  readonly name: string;
  readonly proxy: ServiceProxy<Change>;
  readonly host: ProxyHost;
  readonly context: BackendContext;
  readonly options: ParsedOptions;
}

export interface OpenRuleSets<Change extends RuleChange = RuleChange> {
  readonly ruleSets: readonly RuleSet<Change>[];
  /** Called after each sync and repair of a family, for the backend's own metrics. */
  readonly onOutcome?: ((outcome: FamilyOutcome<Change>) => void) | undefined;
  /**
   * For a proxy that carries the traffic itself: returns the listeners to which conntrack directs UDP clients. Stale
   * flows are then deleted as well. Default: such a proxy leaves conntrack alone.
   */
  readonly udpListeners?: (() => UdpListeners) | undefined;
}

/** A run of a proxy other than serving, e.g. a step of a move to another proxy. */
export interface ProxyAlternative {
  /**
   * Key, in `ParsedOptions`, of the option that selects this run. *Shape:* `cleanupKubeProxy` for
   * `--cleanup-kube-proxy`.
   */
  readonly optionKey: string;
  /** The selecting option first, then options that apply only to this run. */
  readonly options: readonly [OptionSpec, ...OptionSpec[]];
  makeTask(options: ParsedOptions, settings: ProxySettings, context: BackendContext): Task;
}

/**
 * Where the changes of a run go.
 *
 * - kernel: the changes are committed.
 * - print: each transaction is printed (`--dry-run`).
 * - nowhere: the changes are discarded (`--diff` and other runs that only compare).
 */
export type Destination =
  | { readonly kind: "kernel" }
  | { readonly kind: "print"; readonly print: (text: string) => void }
  | { readonly kind: "nowhere" };

export interface ProxyHost {
  readonly destination: Destination;
  readonly settings: ProxySettings;
  readonly sysctls: Sysctls;
  /** Returns the node's own addresses, without Service addresses, as of the last reading; see `RecentAddresses`. */
  readonly localAddresses: () => AddressSet;
  /** Makes `localAddresses` read again. `RuleSets` calls it before each check and each sync of all Services. */
  readonly forgetAddresses: () => void;
  /** Accepts requests from a rule set, such as a partial sync for work that is due later. */
  readonly requests: SyncRequests;
  readonly log: Log;
  readonly metrics: Registry;
}
