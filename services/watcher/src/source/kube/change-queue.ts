import type { ClusterObjects, ClusterSink, ObjectChange } from "../source.ts";

/**
 * Collects what watches report within one turn of the event loop and applies it as one.
 *
 * Bounded by what the kernel's socket buffers and one read give in a turn. A `replace` goes out at once, after what
 * waits, so that the sink gets everything in the order in which it came.
 */
export class ChangeQueue {
  readonly #sink: ClusterSink;
  #waiting: ObjectChange[] = [];
  #flush: NodeJS.Immediate | undefined;

  constructor(sink: ClusterSink) {
    this.#sink = sink;
  }

  push(changes: readonly ObjectChange[]): void {
    if (changes.length === 0) return;
    this.#waiting.push(...changes);
    this.#flush ??= setImmediate(() => this.flush());
  }

  replace(objects: ClusterObjects): void {
    this.flush();
    this.#sink.replace(objects);
  }

  /** Applies what waits. */
  flush(): void {
    clearImmediate(this.#flush);
    this.#flush = undefined;
    if (this.#waiting.length === 0) return;
    const changes = this.#waiting;
    this.#waiting = [];
    this.#sink.apply(changes);
  }
}
