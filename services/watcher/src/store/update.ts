import type { Origin } from "../source/source.ts";
import type { Snapshot } from "./snapshot.ts";

/**
 * A new revision, as observers of the store see it. It names the change and its cause; metrics, traces and `kpng get
 * changes` observe it. A file of its own, so that observers need not import the store.
 */
export interface Update extends Cause {
  readonly before: Snapshot;
  /** The new snapshot, before it is published. Its `traces` are still those of `before`. */
  readonly next: Snapshot;
  /** {@link Store.instance}. */
  readonly instance: string;
}

/** Origin and start of an update of the store. */
export interface Cause {
  readonly origin: Origin | undefined;
  /** When the store began to apply it, in milliseconds since 1970, with fractions. */
  readonly beganAtMs: number;
}
