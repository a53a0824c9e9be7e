import type { Origin } from "../source/source.ts";
import type { Snapshot } from "./snapshot.ts";

/** What the store was given. */
export interface Cause {
  readonly origin: Origin | undefined;
  /** When the store began with it, in milliseconds since 1970, with fractions. */
  readonly beganAtMs: number;
}

/** How a revision came to be. */
export interface Update extends Cause {
  readonly before: Snapshot;
  /** Not yet published; its `traces` are those of the snapshot before. */
  readonly next: Snapshot;
  /** Identity of the store. */
  readonly instance: string;
}
