import { wallClockMs } from "@kpng/process/wall-clock.ts";
import { type FieldProblem, showPath } from "../../decode/decoded.ts";
import type { ObjectChange } from "../../source.ts";
import type { CollectionHandler, HeldBack, IncomingList } from "../reflector/collection-handler.ts";
import type { ReflectorObserver } from "../reflector/reflector-observer.ts";
import { versionOf } from "../reflector/resource-version.ts";
import { rawMetadata } from "../request/raw-object.ts";
import type { WatchEvent } from "../request/watch-once.ts";
import type { ChangeQueue } from "./change-queue.ts";
import type { ObjectKind } from "./object-kinds.ts";
import { ReportedTexts } from "./reported-texts.ts";

/**
 * Last known objects of one kind, decoded, by namespace and name. It turns the lists and watch events of a reflector
 * into changes of the sink.
 *
 * The sink's key of a slice includes its Service. When a slice moves to another Service, or an object is no longer
 * needed by any proxy, the old value is deleted. Invalid parts of an object are skipped, logged once and counted. An
 * object that is invalid as a whole keeps its last valid value.
 *
 * A list that lacks nearly all objects may come from an API server on an empty etcd. Applied at once, it would remove
 * every Service from every node within a second. Its deletions are held; everything else in it applies. The reflector
 * lists again 31 s later, and that list applies as a whole. Until then the kind keeps the version that it had before,
 * so that the mixture never counts as newer than the state of another watcher, here or behind a relay, and the source is
 * stale (`followServer`), so that it does not count as current either.
 *
 * *Cost:* a map entry per object. The values are shared with the store.
 */
export class ObjectCache<T> implements CollectionHandler {
  readonly #kind: ObjectKind<T>;
  readonly #queue: ChangeQueue;
  readonly #observer: ReflectorObserver;
  #objects = new Map<string, T>();
  readonly #reported = new ReportedTexts();
  /** True while the cache holds deletions, so that its objects are not those of any version of the server. */
  #isHolding = false;

  constructor(kind: ObjectKind<T>, queue: ChangeQueue, observer: ReflectorObserver) {
    this.#kind = kind;
    this.#queue = queue;
    this.#observer = observer;
  }

  beginList(): IncomingList {
    const listed = new Map<string, T>();
    const keys = new Set<string>();
    let receivedAtMs: number | undefined;
    return {
      add: (object) => {
        receivedAtMs ??= wallClockMs();
        const key = rawMetadata(object)?.key ?? "";
        keys.add(key);
        const value = this.#decode(key, object);
        if (value !== undefined) listed.set(key, value);
        else listed.delete(key);
      },
      remove: (key) => {
        keys.delete(key);
        listed.delete(key);
      },
      complete: (isConfirming, resourceVersion) => {
        this.#reported.keepOnly(keys);
        const missing = [...this.#objects].filter(([key]) => !listed.has(key));
        const counts = { currentCount: this.#objects.size, deletedCount: missing.length };
        this.#isHolding = !isConfirming && isMassDeletion(counts);
        if (this.#isHolding) for (const [key, value] of missing) listed.set(key, value);
        this.#objects = listed;
        const objects = this.#kind.toClusterObjects([...listed.values()]);
        const version = this.#isHolding ? undefined : versionOf(resourceVersion);
        const versions = version === undefined ? {} : { [this.#kind.kind]: version };
        this.#queue.replace(objects, receivedAtMs, versions);
        return this.#isHolding ? counts : undefined;
      },
    };
  }

  apply(events: readonly WatchEvent[], receivedAtMs: number): void {
    const changes = events.flatMap((event) => this.#changesOf(event));
    const version = this.#isHolding ? "" : (events.at(-1)?.resourceVersion ?? "");
    this.#queue.push(changes, receivedAtMs, this.#kind.kind, version);
  }

  progressed(resourceVersion: string): void {
    if (!this.#isHolding) this.#queue.progressed(this.#kind.kind, resourceVersion);
  }

  #changesOf(event: WatchEvent): readonly ObjectChange[] {
    if (event.kind === "bookmark") return [];
    const old = this.#objects.get(event.key);
    const value = event.kind === "put" ? this.#decode(event.key, event.object) : undefined;
    if (event.kind === "delete") this.#reported.update(event.key, []);
    if (value === old) return [];
    const changes: ObjectChange[] = [];
    if (old !== undefined && (value === undefined || this.#kind.keyOf(value) !== this.#kind.keyOf(old))) {
      changes.push(this.#kind.delete(old));
    }
    if (value === undefined) this.#objects.delete(event.key);
    else {
      this.#objects.set(event.key, value);
      changes.push(this.#kind.put(value));
    }
    return changes;
  }

  /**
   * Returns the decoded object: its known value if it is equal, its last valid value if it is invalid, undefined if no
   * proxy needs it. Values are compared here, object by object as a list arrives. The store then compares only
   * references, and does not block for the comparison of a whole list.
   */
  #decode(key: string, object: unknown): T | undefined {
    const decoded = this.#kind.decode(object);
    switch (decoded.kind) {
      case "ok": {
        const fresh = this.#reported.update(key, decoded.skipped.map(describe));
        if (decoded.skipped.length > 0) this.#observer.partsSkipped(key, fresh, decoded.skipped.length);
        return this.#kind.reuse(this.#objects.get(key), decoded.value);
      }
      case "skip":
        for (const note of this.#reported.update(key, [decoded.note])) this.#observer.skipped(key, note);
        return undefined;
      default: {
        const [fresh] = this.#reported.update(key, [describe(decoded)]);
        this.#observer.bad(key, fresh);
        return this.#objects.get(key);
      }
    }
  }
}

/** True if a list would delete nine tenths of the objects, and at least ten. */
function isMassDeletion({ currentCount, deletedCount }: HeldBack): boolean {
  return deletedCount >= 10 && deletedCount >= 0.9 * currentCount;
}

function describe({ path, problem }: FieldProblem): string {
  return `${showPath(path)}: ${problem}`;
}
