import { isIP } from "node:net";
import { isRecord } from "@kpng/model/narrowing.ts";
import { wallClockMs } from "@kpng/process/wall-clock.ts";
import { type FieldProblem, showPath } from "../decode/decoded.ts";
import type { ObjectChange } from "../source.ts";
import type { ChangeQueue } from "./change-queue.ts";
import type { ObjectKind } from "./object-kinds.ts";
import {
  type CollectionHandler,
  type HeldBack,
  type IncomingList,
  type ReflectorObserver,
  versionOf,
} from "./reflector.ts";
import { rawMetadata, type WatchEvent } from "./watch.ts";

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

/**
 * Remembers which problems of each object were logged, so that each is logged once, and again only when it changes.
 * `RepeatLimit` limits log lines by time instead.
 *
 * *Bound:* 20 texts for each object that has a problem.
 */
class ReportedTexts {
  #textsByKey = new Map<string, ReadonlySet<string>>();

  /**
   * Replaces the texts of an object, and returns those that are new, at most 20. Two texts that differ only in the
   * index of an array are the same: entries move when another one is added.
   */
  update(key: string, texts: readonly string[]): readonly string[] {
    if (texts.length === 0) {
      this.#textsByKey.delete(key);
      return [];
    }
    const before = this.#textsByKey.get(key);
    const shown = texts.slice(0, maxTexts);
    this.#textsByKey.set(key, new Set(shown.map(withoutIndexes)));
    return shown.filter((text) => before?.has(withoutIndexes(text)) !== true);
  }

  /** Forgets the objects that a complete list does not contain. */
  keepOnly(keys: ReadonlySet<string>): void {
    for (const key of this.#textsByKey.keys()) if (!keys.has(key)) this.#textsByKey.delete(key);
  }
}

const maxTexts = 20;

function withoutIndexes(text: string): string {
  return text.replaceAll(/\[\d+\]/g, "[]");
}

/**
 * Last known CIDRs of all ServiceCIDR objects, which are ranges of cluster IPs. When one changes, the sink gets all
 * CIDRs as one sorted set.
 *
 * Source: networking.k8s.io/v1 ServiceCIDR.spec.cidrs.
 */
export class ServiceCIDRCache implements CollectionHandler {
  readonly #queue: ChangeQueue;
  #cidrsByObject = new Map<string, readonly string[]>();

  constructor(queue: ChangeQueue) {
    this.#queue = queue;
  }

  beginList(): IncomingList {
    const listed = new Map<string, readonly string[]>();
    return {
      add: (object) => listed.set(rawMetadata(object)?.key ?? "", cidrsOf(object)),
      remove: (key) => listed.delete(key),
      complete: () => {
        this.#cidrsByObject = listed;
        this.#publish();
        return undefined;
      },
    };
  }

  apply(events: readonly WatchEvent[]): void {
    for (const event of events) {
      if (event.kind === "put") this.#cidrsByObject.set(event.key, cidrsOf(event.object));
      if (event.kind === "delete") this.#cidrsByObject.delete(event.key);
    }
    if (events.some((event) => event.kind !== "bookmark")) this.#publish();
  }

  #publish(): void {
    this.#queue.replace({ serviceCIDRs: [...new Set([...this.#cidrsByObject.values()].flat())].sort() }, wallClockMs());
  }
}

function cidrsOf(object: unknown): readonly string[] {
  const spec = isRecord(object) && isRecord(object.spec) ? object.spec : {};
  const cidrs: readonly unknown[] = Array.isArray(spec.cidrs) ? spec.cidrs : [];
  return cidrs.filter((cidr) => typeof cidr === "string").filter((cidr) => isIP(cidr.split("/")[0] ?? "") !== 0);
}
