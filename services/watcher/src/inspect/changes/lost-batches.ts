import type { Recipient } from "../../stream/session/subscribers.ts";

/** Batches that a node lost with a stream: the revisions after `after`, up to and including `revision`. */
export interface LostBatch {
  readonly after: number;
  readonly revision: number;
  /** The node had reported that it failed to apply the batch. */
  readonly hasFailed: boolean;
}

/**
 * The batches that nodes had not acknowledged when their streams ended. `RecentChanges` takes them back when the same
 * node applies a later revision on another stream: then they count as applied, and no longer as lost.
 *
 * *Bound:* 10 000 nodes with 16 batches each; beyond that, the oldest are forgotten and stay lost.
 *
 * Separate from the subscriber, which is gone when its stream ends.
 */
export class LostBatches {
  readonly #byNode = new Map<string, LostBatch[]>();

  add(recipient: Recipient, batch: LostBatch): void {
    const key = keyOf(recipient);
    const batches = this.#byNode.get(key) ?? [];
    batches.push(batch);
    if (batches.length > maxBatches) batches.shift();
    this.#byNode.set(key, batches);
    const [oldest] = this.#byNode.keys();
    if (this.#byNode.size > maxNodes && oldest !== undefined) this.#byNode.delete(oldest);
  }

  /** Removes and returns the batches that the node lost on earlier streams. */
  take(recipient: Recipient): readonly LostBatch[] {
    if (this.#byNode.size === 0) return [];
    const key = keyOf(recipient);
    const batches = this.#byNode.get(key) ?? [];
    this.#byNode.delete(key);
    return batches;
  }
}

const maxNodes = 10_000;
const maxBatches = 16;

function keyOf({ nodeName, proxyName, program }: Recipient): string {
  return JSON.stringify([nodeName, proxyName, program]);
}
