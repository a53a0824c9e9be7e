import type { ProxyProfile } from "../scenario/deviations.ts";
import type { State } from "../scenario/manifest.ts";
import type { Settings } from "../scenario/scenario.ts";

/** A service proxy under test, which runs in the network of node n1. */
export interface TestedProxy {
  readonly profile: ProxyProfile;
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
