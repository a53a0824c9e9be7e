import type { State } from "../scenario/manifest.ts";
import type { ProxyName } from "../scenario/proxy-name.ts";
import type { Scenario, Settings, Update } from "../scenario/scenario.ts";
import type { IptablesVariant } from "./laboratory/legacy-tools.ts";
import type { TwoNodes } from "./laboratory/two-nodes.ts";

/** Proxy under test, which runs in the network of node n1. */
export interface Backend {
  readonly proxy: ProxyName;
  /** Starts the proxy with these settings on this state; resolves when its rules are installed. */
  start(settings: Settings, state: State): Promise<void>;
  /** Changes the state of the cluster; resolves when the rules for it are installed. */
  apply(state: State): Promise<void>;
  /** Restarts the process with the same settings; resolves when it has synced. */
  restart(signal?: "SIGTERM" | "SIGKILL"): Promise<void>;
  stop(signal?: "SIGTERM" | "SIGKILL"): Promise<void>;
  /** Deletes rules of the proxy from the kernel, as another program could do. */
  loseRules(): Promise<void>;
  /** Runs the proxy's own cleanup command and returns its output. The process must have exited. */
  cleanUp(): Promise<string>;
  /** Returns the end of its output, for the message of a failing test. */
  log(): string;
}

/** Backend with the source of its state; `close` stops both. */
export type RunningBackend = Backend & { close(): Promise<void> };

/** Backend of a test file. */
export interface BackendUnderTest {
  readonly name: string;
  /** Reason why it cannot run here. Default: it can. */
  readonly whyNot?: string | undefined;
  /** Default "nft". */
  readonly variant?: IptablesVariant | undefined;
  readonly start: (world: TwoNodes) => Promise<RunningBackend>;
  /** Default: all scenarios. */
  readonly scenarios?: readonly Scenario[] | undefined;
  /** Default: all updates. */
  readonly updates?: readonly Update[] | undefined;
  /** Default: packets alone decide, and a failure shows the rules of nftables. */
  readonly rules?: InstalledRules | undefined;
}

/** The installed rules of a proxy, for proxies whose rules are text. */
export interface InstalledRules {
  /** Returns the rules, one a line, for the message of a failing test. */
  readonly show: (world: TwoNodes) => Promise<string>;
  /**
   * Traces a scenario's packets through the rules and returns a line for each unexpected result. Default: no tracer
   * understands the rules.
   */
  readonly trace?: ((world: TwoNodes, scenario: Scenario, proxy: ProxyName) => Promise<readonly string[]>) | undefined;
}
