import { randomUUID } from "node:crypto";
import { sliceKey } from "@kpng/model/endpoint.ts";
import { Wakeup } from "@kpng/process/wait.ts";
import { wallClockMs } from "@kpng/process/wall-clock.ts";
import type { ClusterObjects, ClusterSink, Kind, ObjectChange, ObjectOf, Origin } from "@kpng/source/source.ts";
import { applyChange, replaceObjects } from "./change-snapshot.ts";
import { Currency } from "./currency.ts";
import { type Cause, emptySnapshot, maxTraces, type Snapshot, type TracedRevision, type Update } from "./snapshot.ts";

/**
 * Holds the cluster state of a watcher. A source writes to it, and everything else reads its snapshots.
 *
 * Each call of `apply` or `replace` that changes a value creates one snapshot. Readers that wait for a change ({@link
 * next}) get only the newest snapshot; observers get every revision ({@link observe}).
 */
export class Store implements ClusterSink {
  /** Random identity of the store, because revisions of different stores must not be compared. */
  readonly instance = randomUUID();
  /** How new the state is, and whether it is known to be current. */
  readonly currency = new Currency(this.instance);
  readonly #changed = new Wakeup();
  readonly #missingKinds = new Set<Kind>(kinds);
  readonly #trace: StoreOptions["trace"];
  readonly #now: () => number;
  readonly #observers = new Set<(update: Update) => void>();
  #snapshot: Snapshot = emptySnapshot;
  #isWaking = false;

  constructor({ trace, now = wallClockMs }: StoreOptions = {}) {
    this.#trace = trace;
    this.#now = now;
  }

  get snapshot(): Snapshot {
    return this.#snapshot;
  }

  /**
   * Calls `observer` for each further revision, before readers can see it, as long as the store lives. The observer
   * must be quick and must not throw.
   */
  observe(observer: (update: Update) => void): void {
    this.#observers.add(observer);
  }

  /** The kinds that no source has listed completely yet. */
  get missingKinds(): readonly Kind[] {
    return [...this.#missingKinds];
  }

  /** Number of readers that are waiting for the next snapshot. */
  get waitingCount(): number {
    return this.#changed.waitingCount;
  }

  /** Resolves with the first synced snapshot after revision `after`, or undefined when `signal` aborts. */
  async next(after: number, signal: AbortSignal): Promise<Snapshot | undefined> {
    while (!signal.aborted) {
      if (this.#snapshot.isSynced && this.#snapshot.revision > after) return this.#snapshot;
      await this.#changed.wait(signal);
    }
    return undefined;
  }

  /** Calls `callback` once, after the next change (synced or not), unless {@link cancelNext} is called first. */
  callNext(callback: () => void): void {
    this.#changed.call(callback);
  }

  cancelNext(callback: () => void): void {
    this.#changed.cancel(callback);
  }

  apply(changes: readonly ObjectChange[], origin?: Origin): void {
    const beganAtMs = this.#now();
    this.#publish(changes.reduce(applyChange, this.#snapshot), { origin, beganAtMs });
  }

  replace(objects: ClusterObjects, origin?: Origin): void {
    const beganAtMs = this.#now();
    let next = replaceObjects(this.#snapshot, objects);
    for (const kind of kinds) if (objects[kind] !== undefined) this.#missingKinds.delete(kind);
    if (this.#missingKinds.size === 0 && !next.isSynced) next = { ...next, isSynced: true };
    this.#publish(next, { origin, beganAtMs });
  }

  hasState(objects: ClusterObjects): boolean {
    return replaceObjects(this.#snapshot, objects) === this.#snapshot;
  }

  find<K extends Kind>(kind: K, key: string): ObjectOf[K] | undefined {
    const { services, slicesByService, nodes } = this.#snapshot;
    const finders: { readonly [Of in Kind]: () => ObjectOf[Of] | undefined } = {
      services: () => services.get(key),
      slices: () => slicesByService.get(key.slice(0, key.lastIndexOf("/")))?.find((slice) => sliceKey(slice) === key),
      nodes: () => nodes.get(key),
    };
    return finders[kind]();
  }

  #publish(state: Snapshot, cause: Cause): void {
    const before = this.#snapshot;
    const revision = before.revision + 1;
    // Called even if nothing changed: the versions of such an event then count in the position of the next revision.
    const position = this.currency.positionOf(before, state, revision, cause.origin);
    if (state === before) return;
    const next = { ...state, revision, position, storedAtMs: this.#now() };
    const published = { ...cause, before, next, instance: this.instance };
    for (const observer of this.#observers) observer(published);
    const traced = this.#trace?.(published);
    this.#snapshot = traced === undefined ? next : { ...next, traces: [...before.traces, traced].slice(-maxTraces) };
    this.#wake();
  }

  /** Wakes readers after the source's current call has returned. Several calls in a row wake them once. */
  #wake(): void {
    if (this.#isWaking) return;
    this.#isWaking = true;
    queueMicrotask(() => {
      this.#isWaking = false;
      this.#changed.wake();
    });
  }
}

/** Kinds that must be listed before the store is synced. */
const kinds: readonly Kind[] = ["services", "slices", "nodes"];

interface StoreOptions {
  /**
   * Called for each revision before readers can see it; returns the revision's trace if it is traced. Must not throw.
   */
  readonly trace?: ((update: Update) => TracedRevision | undefined) | undefined;
  /** Returns fractional milliseconds since 1970. Default: the system clock. */
  readonly now?: (() => number) | undefined;
}
