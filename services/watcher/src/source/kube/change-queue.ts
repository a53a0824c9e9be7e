import { wallClockMs } from "@kpng/process/wall-clock.ts";
import type { ClusterObjects, ClusterSink, Kind, ObjectChange, Versions } from "../source.ts";
import { versionOf } from "./reflector.ts";

/**
 * Coalesces the changes that all watches report within one turn of the event loop into one call of the sink, and so
 * into one revision. A `replace` is passed on at once, after the queued changes, so the sink sees everything in order.
 *
 * *Bound:* what one read of each connection delivers in a turn.
 */
export class ChangeQueue {
  /** Identity of the cluster; undefined until it is known. */
  clusterId: string | undefined;
  readonly #sink: ClusterSink;
  #queued: ObjectChange[] = [];
  /** Newest versions of the queued changes. */
  #versions: Partial<Record<Kind, bigint>> = {};
  /** Versions up to which the kinds are current once the queue is empty. */
  #known: Partial<Record<Kind, bigint>> = {};
  /** When the first queued change was received. */
  #receivedAtMs = 0;
  #flush: NodeJS.Immediate | undefined;

  constructor(sink: ClusterSink) {
    this.#sink = sink;
  }

  /**
   * Queues changes of a kind. `receivedAtMs` in milliseconds since 1970, with fractions. `resourceVersion` is that of
   * the last change.
   */
  push(changes: readonly ObjectChange[], receivedAtMs: number, kind: Kind, resourceVersion: string): void {
    this.progressed(kind, resourceVersion);
    if (changes.length === 0) return;
    if (this.#queued.length === 0) this.#receivedAtMs = receivedAtMs;
    this.#queued.push(...changes);
    const version = versionOf(resourceVersion);
    if (version !== undefined) this.#versions[kind] = version;
  }

  /** Records that the kind is current up to `resourceVersion` once the queued changes are applied. */
  progressed(kind: Kind, resourceVersion: string): void {
    const version = versionOf(resourceVersion);
    if (version !== undefined) this.#known[kind] = version;
    this.#flush ??= setImmediate(() => this.flush());
  }

  /**
   * Replaces all objects of a kind. `receivedAtMs` is when the first object of the list arrived, by default now.
   * `versions`: see `Origin`.
   */
  replace(objects: ClusterObjects, receivedAtMs: number = wallClockMs(), versions: Versions = {}): void {
    this.flush();
    this.#sink.replace(objects, { source: "kube", receivedAtMs, versions, clusterId: this.clusterId });
  }

  flush(): void {
    clearImmediate(this.#flush);
    this.#flush = undefined;
    const [changes, versions, known] = [this.#queued, this.#versions, this.#known];
    [this.#queued, this.#versions, this.#known] = [[], {}, {}];
    const { clusterId } = this;
    const origin = { source: "kube", receivedAtMs: this.#receivedAtMs, versions, clusterId };
    if (changes.length > 0) this.#sink.apply(changes, origin);
    this.#sink.currency?.known(known);
  }
}
