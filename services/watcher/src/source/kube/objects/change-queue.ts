import { wallClockMs } from "@kpng/process/wall-clock.ts";
import type { ClusterObjects, ClusterSink, HeldBack, ObjectChange } from "../../source.ts";

/**
 * Coalesces the changes that all watches report within one turn of the event loop into one call of the sink, and so
 * into one revision. All object caches of a `kubeSource` share one queue.
 *
 * A `replace` is passed on at once, after the queued changes, so the sink sees everything in order.
 *
 * *Bound:* what one read of each connection delivers in a turn.
 */
export class ChangeQueue {
  readonly #sink: ClusterSink;
  #queued: ObjectChange[] = [];
  /** When the first queued change was received. */
  #receivedAtMs = 0;
  #flush: NodeJS.Immediate | undefined;

  constructor(sink: ClusterSink) {
    this.#sink = sink;
  }

  /** Queues changes. `receivedAtMs` in milliseconds since 1970, with fractions. */
  push(changes: readonly ObjectChange[], receivedAtMs: number): void {
    if (changes.length === 0) return;
    if (this.#queued.length === 0) this.#receivedAtMs = receivedAtMs;
    this.#queued.push(...changes);
    this.#flush ??= setImmediate(() => this.flush());
  }

  /**
   * Replaces all objects of a kind. `receivedAtMs` is when the first object of the list arrived, by default now.
   * `isConfirming`: see `Origin`.
   */
  replace(objects: ClusterObjects, receivedAtMs: number = wallClockMs(), isConfirming = false): HeldBack | undefined {
    this.flush();
    return this.#sink.replace(objects, { source: "kube", receivedAtMs, isConfirming });
  }

  /** Applies the queued changes. */
  flush(): void {
    clearImmediate(this.#flush);
    this.#flush = undefined;
    if (this.#queued.length === 0) return;
    const changes = this.#queued;
    this.#queued = [];
    this.#sink.apply(changes, { source: "kube", receivedAtMs: this.#receivedAtMs });
  }
}
