import type { WatchEvent } from "../request/watch-once.ts";

/** A list on its way: objects are added as they come, and count once it is complete. */
export interface ListTaker {
  add(object: unknown): void;
  /**
   * The list is complete. Returns "braked", and takes nothing, if it would delete most of what is held and
   * `isConfirmed` is false.
   */
  complete(isConfirmed: boolean): { readonly kind: "taken" } | Braked;
}

export interface Braked {
  readonly kind: "braked";
  readonly heldCount: number;
  readonly deletedCount: number;
}

/** What a reflector feeds. Knows nothing of connections. */
export interface KindHandler {
  /** Begins a list. One that is never completed leaves no trace. */
  beginList(): ListTaker;
  /**
   * Puts and deletes of a watch, in their order; bookmarks among them mean nothing here. `receivedAtMs` in milliseconds
   * since 1970, with fractions.
   */
  apply(events: readonly WatchEvent[], receivedAtMs: number): void;
}
