import type { ApplyTimings } from "./acknowledgement.ts";
import type { PendingBatch } from "./pending-batches.ts";

/**
 * Observes the batches of all subscribers. `Subscriber` calls the methods; `Convergence` (metrics), `TraceSends` and
 * `RecentChanges` implement it. Separate, so that followers need not import `Subscriber`.
 *
 * The methods are called for each batch, so they must be O(1) and must not throw. Times are in milliseconds since 1970,
 * with fractions.
 */
export interface DeliveryFollower {
  /** A batch was written completely. */
  sent?(recipient: Recipient, delivery: Delivery, nowMs: number): void;
  /** The subscriber has received a batch. */
  received?(recipient: Recipient, batch: PendingBatch): void;
  /** The subscriber has applied a batch. It may report how long the stages took. */
  applied?(recipient: Recipient, batch: PendingBatch, atMs: number, timings: ApplyTimings | undefined): void;
  /** The subscriber could not apply a batch. */
  failed?(recipient: Recipient, batch: PendingBatch, error: string): void;
  /**
   * The stream ended before the subscriber acknowledged a batch; for a subscriber that never acknowledges, before it
   * received the batch.
   */
  lost?(recipient: Recipient, batch: PendingBatch): void;
}

/** The view that a stream carries: of one node, or of the whole cluster. */
export type SubscriberKind = "local" | "global";

/** A batch that was written to a stream. */
export interface Delivery {
  /** The revision that the subscriber had before; 0 for none. */
  readonly after: number;
  readonly revision: number;
  /** When the changes were computed, in milliseconds since 1970, with fractions; 0 while no revision is traced. */
  readonly computedAtMs: number;
  /** Size of the messages with their frame headers. */
  readonly byteCount: number;
}

/** The subscriber of a delivery. */
export interface Recipient {
  readonly kind: SubscriberKind;
  /** True for the proxy of a node; false for relays, people and recorders. */
  readonly isNode: boolean;
  readonly nodeName: string;
  readonly proxyName: string;
  readonly program: string;
  readonly sentRevision: number;
  readonly receivedRevision: number;
  readonly appliedRevision: number;
}
