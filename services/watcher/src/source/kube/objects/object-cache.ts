import { wallClockMs } from "@kpng/process/wall-clock.ts";
import { type FieldProblem, showPath } from "../../decode/decoded.ts";
import type { ObjectChange } from "../../source.ts";
import type { CollectionHandler, IncomingList } from "../reflector/collection-handler.ts";
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
 * *Cost:* a map entry per object. The values are shared with the store.
 *
 * `kubeSource` makes one for each kind and passes it to the reflector as its handler. Separate from the reflector,
 * which knows versions and requests, but no objects.
 */
export class ObjectCache<T> implements CollectionHandler {
  readonly #kind: ObjectKind<T>;
  readonly #queue: ChangeQueue;
  readonly #observer: ReflectorObserver;
  #objects = new Map<string, T>();
  readonly #reported = new ReportedTexts();

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
      },
      complete: (isConfirming, resourceVersion) => {
        this.#reported.keepOnly(keys);
        this.#objects = listed;
        const objects = this.#kind.toClusterObjects([...listed.values()]);
        const version = versionOf(resourceVersion);
        const versions = version === undefined ? {} : { [this.#kind.kind]: version };
        return this.#queue.replace(objects, receivedAtMs, isConfirming, versions);
      },
    };
  }

  apply(events: readonly WatchEvent[], receivedAtMs: number): void {
    const changes = events.flatMap((event) => this.#changesOf(event));
    this.#queue.push(changes, receivedAtMs, this.#kind.kind, events.at(-1)?.resourceVersion ?? "");
  }

  progressed(resourceVersion: string): void {
    this.#queue.progressed(this.#kind.kind, resourceVersion);
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

function describe({ path, problem }: FieldProblem): string {
  return `${showPath(path)}: ${problem}`;
}
