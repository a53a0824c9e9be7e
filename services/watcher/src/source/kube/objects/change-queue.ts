import { wallClockMs } from "@kpng/process/wall-clock.ts";
import type { ClusterObjects, ClusterSink, ObjectChange } from "../../source.ts";

/**
 * Collects what watches report within one turn of the event loop and applies it as one.
 *
 * Bounded by what the kernel's socket buffers and one read give in a turn. A `replace` goes out at once, after what
 * waits, so that the sink gets everything in the order in which it came.
 */
export class ChangeQueue {
  readonly #sink: ClusterSink;
  #waiting: ObjectChange[] = [];
  /** When the first of them was received. */
  #receivedAtMs = 0;
  #flush: NodeJS.Immediate | undefined;

  constructor(sink: ClusterSink) {
    this.#sink = sink;
  }

  /** `receivedAtMs` in milliseconds since 1970, with fractions; so below. */
  push(changes: readonly ObjectChange[], receivedAtMs: number): void {
    if (changes.length === 0) return;
    if (this.#waiting.length === 0) this.#receivedAtMs = receivedAtMs;
    this.#waiting.push(...changes);
    this.#flush ??= setImmediate(() => this.flush());
  }

  /** An empty list is received when it is complete. */
  replace(objects: ClusterObjects, receivedAtMs: number = wallClockMs()): void {
    this.flush();
    this.#sink.replace(objects, { source: "kube", receivedAtMs });
  }

  /** Applies what waits. */
  flush(): void {
    clearImmediate(this.#flush);
    this.#flush = undefined;
    if (this.#waiting.length === 0) return;
    const changes = this.#waiting;
    this.#waiting = [];
    this.#sink.apply(changes, { source: "kube", receivedAtMs: this.#receivedAtMs });
  }
}
