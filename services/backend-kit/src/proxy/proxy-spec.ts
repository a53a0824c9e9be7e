import type { OptionSpec } from "@kpng/process/options.ts";
import type { Task } from "@kpng/process/task.ts";
import type { ProxySettings } from "@kpng/service-plan/plan-node.ts";
import type { BackendContext } from "../backend/backend-command.ts";
import type { ParsedOptions } from "../types/parsed-options.ts";
import type { ProxyHost } from "./proxy-host.ts";
import type { RuleChange, RuleSet } from "./rule-set.ts";
import type { FamilyOutcome } from "./rule-sets.ts";

/** A service proxy, as a backend describes it to `proxyBackend`. */
export interface ProxySpec<Change extends RuleChange = RuleChange> {
  /** Lower case letters; e.g. "iptables": `kpng-iptables`, `to-iptables`, `kpng_iptables_repairs_total`. */
  readonly name: string;
  /** kube-proxy's name of the mode, for /proxyMode, `--config` and `--MODE-sync-period`. */
  readonly proxyMode: string;
  readonly description: string;
  /** Shown below the options; `COMMAND` stands for the words that start the backend. */
  readonly examples: string;
  /** Options of this backend alone. */
  readonly options: readonly OptionSpec[];
  /** The node-port addresses without `--nodeport-addresses`, as in kube-proxy's mode. Default: all. */
  readonly defaultNodePortAddresses?: "primary" | undefined;
  /** Other ways to run it, each selected by an option. */
  readonly alternatives?: readonly ProxyAlternative[] | undefined;
  /** Reads the backend's own options. Errors: BAD_OPTION. */
  makeProxy(options: ParsedOptions, serviceProxyName: string): ServiceProxy<Change>;
}

/** A service proxy with its options. */
export interface ServiceProxy<Change extends RuleChange = RuleChange> {
  /** Whether node ports should answer on 127.0.0.0/8, where the node-port addresses include it. */
  readonly wantsLoopbackNodePorts: boolean;
  /**
   * Opens a rule set for each family that the node can have rules in, IPv4 first. Rejects if the node cannot have such
   * rules at all: a retry would not help.
   */
  openRuleSets(host: ProxyHost): Promise<OpenRuleSets<Change>>;
  /** Removes everything that this backend ever installed under its names. Errors: those of the backend. */
  cleanUp(host: ProxyHost): Promise<void>;
}

export interface OpenRuleSets<Change extends RuleChange> {
  readonly ruleSets: readonly RuleSet<Change>[];
  /** Called after each sync and repair of a family, for metrics of the backend's own. */
  readonly onOutcome?: ((outcome: FamilyOutcome<Change>) => void) | undefined;
}

/** A way to run a proxy that changes nothing on the node, e.g. shadow mode. */
export interface ProxyAlternative {
  /** Name of the option that selects it. *Shape:* `shadow` for `--shadow`. */
  readonly name: string;
  /** That option, and options for this run alone. */
  readonly options: readonly OptionSpec[];
  /** Whether the exit status of a run with these options is an answer; see `BackendCommand.isQuestion`. */
  isQuestion(options: ParsedOptions): boolean;
  makeTask(options: ParsedOptions, settings: ProxySettings, context: BackendContext): Task;
}
