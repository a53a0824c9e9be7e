import type { WatchEvent } from "../request/watch-once.ts";

/**
 * Receives the objects of one collection of the Kubernetes API, such as all Services. The reflector, which lists and
 * watches the collection, calls it. `ObjectCache` (Services, EndpointSlices, Nodes) and `ServiceCIDRCache` implement
 * it. A file of its own, so that the reflector and its handlers do not import each other.
 */
export interface CollectionHandler {
  /** Starts a list. A list that is never completed has no effect. */
  beginList(): IncomingList;
  /**
   * Applies puts and deletes of a watch in their order; bookmarks are not among them. `receivedAtMs` is when they were
   * received, in milliseconds since 1970, with fractions.
   */
  apply(events: readonly WatchEvent[], receivedAtMs: number): void;
  /** Called after each batch of events, also of bookmarks alone: no further changes up to this resourceVersion. */
  progressed?(resourceVersion: string): void;
}

/** A list that is being received. Its objects take effect together, when it is complete. */
export interface IncomingList {
  add(object: unknown): void;
  /** Removes an object that was deleted after it was added. */
  remove(key: string): void;
  /**
   * Ends the list and applies it. Returns the deletions that it holds, if the list would delete nearly everything.
   * `isConfirming`: deletions are held, and this list was read from etcd to confirm or refute them, so all of it
   * applies. `resourceVersion` is that of the list.
   */
  complete(isConfirming: boolean, resourceVersion: string): HeldBack | undefined;
}

/** Deletions that are held, because a list lacks `deletedCount` of `currentCount` objects. */
export interface HeldBack {
  readonly currentCount: number;
  readonly deletedCount: number;
}
