import type { State } from "../scenario/manifest.ts";
import type { ProxyMode, Settings } from "../scenario/scenario.ts";
import type { IptablesVariant } from "./laboratory/legacy-tools.ts";
import type { TwoNodes } from "./laboratory/two-nodes.ts";

/** Proxy under test, which runs in the network of node n1. */
export interface Backend {
  readonly name: string;
  /** Starts the proxy with these settings on this state; resolves when its rules are installed. */
  start(settings: Settings, state: State): Promise<void>;
  /** Changes the state of the cluster; resolves when the rules for it are installed. */
  apply(state: State): Promise<void>;
  /** Restarts the process with the same settings; resolves when it has synced. */
  restart(signal?: "SIGTERM" | "SIGKILL"): Promise<void>;
  stop(signal?: "SIGTERM" | "SIGKILL"): Promise<void>;
  /** Runs the proxy's own cleanup command and returns its output. The process must have exited. */
  cleanUp(): Promise<string>;
  /** Commands that remove its NAT rules behind its back. Default: those that flush iptables' table nat. */
  readonly natFlush?: readonly (readonly string[])[] | undefined;
  /** Returns the end of its output, for the message of a failing test. */
  log(): string;
}

/** Backend with the source of its state; `close` stops both. */
export type RunningBackend = Backend & { close(): Promise<void> };

/** Backend of a test file. */
export interface BackendUnderTest {
  readonly name: string;
  /** Reason why it cannot run here; undefined if it can. */
  readonly whyNot: string | undefined;
  /** Default "nft". */
  readonly variant?: IptablesVariant | undefined;
  /** kube-proxy's mode with the same results, for scenarios with exceptions. Default "iptables". */
  readonly mode?: ProxyMode | undefined;
  readonly start: (world: TwoNodes) => Promise<RunningBackend>;
}
