import type { State } from "../scenario/manifest.ts";
import type { Settings } from "../scenario/scenario.ts";
import type { IptablesVariant } from "./laboratory/legacy-tools.ts";
import type { TwoNodes } from "./laboratory/two-nodes.ts";

/** A proxy under test, which runs in the network of node n1. */
export interface Backend {
  readonly name: string;
  /** Starts it with these settings on this state; resolves when the kernel has its rules. */
  start(settings: Settings, state: State): Promise<void>;
  /** Makes this the state of the cluster; resolves when the kernel has the rules for it. */
  apply(state: State): Promise<void>;
  /** Ends the process and starts it again with the same settings; resolves when it has synced. */
  restart(signal?: "SIGTERM" | "SIGKILL"): Promise<void>;
  stop(signal?: "SIGTERM" | "SIGKILL"): Promise<void>;
  /** Removes all its rules with its own command for that, whose words it returns. The process must have ended. */
  cleanUp(): Promise<string>;
  /** What it said last, for the message of a failing test. */
  log(): string;
}

/** A backend and what feeds it; `close` ends both. */
export type RunningBackend = Backend & { close(): Promise<void> };

/** How the tests get a backend. */
export interface BackendUnderTest {
  readonly name: string;
  /** Why it cannot run here; undefined if it can. */
  readonly whyNot: string | undefined;
  /** Default "nft". */
  readonly variant?: IptablesVariant | undefined;
  readonly start: (world: TwoNodes) => Promise<RunningBackend>;
}
