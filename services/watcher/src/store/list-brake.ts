import { assertNever } from "@kpng/model/assert-never.ts";
import { type BrakeOptions, brakeList, type HeldDeletions, isSuspicious } from "@kpng/model/brake.ts";
import { sliceKey } from "@kpng/model/endpoint.ts";
import { serviceKey } from "@kpng/model/service.ts";
import type { ClusterObjects, HeldBack, Kind, ObjectChange } from "../source/source.ts";
import type { Snapshot } from "./snapshot.ts";

/**
 * The brake of a store: holds the deletions of a list that would remove nearly all objects of a kind. It adds the held
 * objects to the list, so that the store keeps them.
 *
 * *Bound:* the keys of the objects in the store.
 *
 * Each `Store` has one and passes it every list and every change of a watch before it applies them. `observeBrake`
 * reports held deletions.
 *
 * Separate from `Store`, which only applies what the brake lets through. The rule itself is `brakeList`.
 */
export class ListBrake {
  readonly #options: BrakeOptions;
  readonly #release: (changes: readonly ObjectChange[]) => void;

  readonly #held = new Map<Kind, HeldDeletions>();
  readonly #listeners = new Set<(event: BrakeEvent) => void>();
  readonly #timers = new Map<Kind, NodeJS.Timeout>();

  /** `release` deletes the held objects from the store. */
  constructor(options: BrakeOptions, release: (changes: readonly ObjectChange[]) => void) {
    this.#options = options;
    this.#release = release;
  }

  /** Kinds with held deletions. */
  get held(): ReadonlyMap<Kind, HeldDeletions> {
    return this.#held;
  }

  /** Time until the deletions of a kind are released in any case, in milliseconds. */
  remainingMs({ sinceMs }: HeldDeletions): number {
    return Math.max(0, sinceMs + this.#options.holdMs - performance.now());
  }

  /** Calls `listener` when deletions are held or released. It must not throw. */
  observe(listener: (event: BrakeEvent) => void): void {
    this.#listeners.add(listener);
  }

  /** Returns the list with the objects whose deletion is held, and how many these are. */
  list(snapshot: Snapshot, objects: ClusterObjects, isConfirming: boolean): BrakedList {
    if (this.#options.holdMs === 0) return { objects, held: undefined };
    const { services, slices, nodes } = objects;
    const keep = <T>(kind: Kind, current: Iterable<T>, listed: readonly T[] | undefined, keyOf: (one: T) => string) =>
      listed === undefined ? undefined : this.#list(kind, [...current], listed, keyOf, isConfirming);
    const kept = {
      services: keep("services", snapshot.services.values(), services, serviceKey),
      slices: keep("slices", [...snapshot.slicesByService.values()].flat(), slices, sliceKey),
      nodes: keep("nodes", snapshot.nodes.values(), nodes, (node) => node.name),
    };
    const kinds = (["services", "slices", "nodes"] as const).filter((kind) => objects[kind] !== undefined);
    const [first] = kinds.flatMap((kind) => this.#held.get(kind) ?? []);
    const held = first && { deletedCount: first.keys.size, currentCount: first.currentCount };
    return { objects: { ...objects, ...kept }, held };
  }

  /** Ends the hold of objects that a watch puts or deletes. */
  changed(changes: readonly ObjectChange[]): void {
    if (this.#held.size === 0) return;
    for (const change of changes) {
      const [kind, key] = keyOfChange(change);
      const held = this.#held.get(kind);
      if (held?.keys.has(key) !== true) continue;
      const keys = new Set(held.keys);
      keys.delete(key);
      this.#set(kind, keys.size === 0 ? undefined : { ...held, keys }, "refuted");
    }
  }

  /** Deletes all held objects now. Returns their number. */
  release(reason: ReleaseReason = "operator"): number {
    return [...this.#held.keys()].reduce((sum, kind) => sum + this.#releaseKind(kind, reason), 0);
  }

  #list<T>(
    kind: Kind,
    current: readonly T[],
    listed: readonly T[],
    keyOf: (value: T) => string,
    isConfirming: boolean,
  ): readonly T[] {
    const before = this.#held.get(kind);
    if (before === undefined) {
      // Sources keep the identity of equal objects, and comparing keys takes many times as long.
      const same = new Set(listed);
      const otherCount = current.reduce((count, value) => (same.has(value) ? count : count + 1), 0);
      if (!isSuspicious(current.length, otherCount, this.#options)) return listed;
    }
    const currentByKey = new Map(current.map((value) => [keyOf(value), value]));
    const keys = new Set(listed.map(keyOf));
    const has = (key: string): boolean => keys.has(key);
    const all = { currentKeys: currentByKey.keys(), has, isConfirming, nowMs: performance.now() };
    const held = brakeList(all, before, this.#options);
    const isRefuted = before !== undefined && [...before.keys].every(has);
    this.#set(kind, held, isRefuted ? "refuted" : "confirmed");
    if (held === undefined) return listed;
    return [...listed, ...[...held.keys].flatMap((key) => currentByKey.get(key) ?? [])];
  }

  #releaseKind(kind: Kind, reason: ReleaseReason): number {
    const keys = this.#held.get(kind)?.keys ?? new Set<string>();
    this.#set(kind, undefined, reason);
    this.#release([...keys].map((key) => deletionOf(kind, key)));
    return keys.size;
  }

  #set(kind: Kind, held: HeldDeletions | undefined, reason: ReleaseReason): void {
    const before = this.#held.get(kind);
    if (held === before) return;
    clearTimeout(this.#timers.get(kind));
    this.#timers.delete(kind);
    if (held === undefined) this.#held.delete(kind);
    else {
      this.#held.set(kind, held);
      const timer = setTimeout(() => this.#releaseKind(kind, "expired"), this.remainingMs(held));
      this.#timers.set(kind, timer.unref());
    }
    if (held === undefined) for (const listener of this.#listeners) listener({ kind, verb: "released", reason });
    else if (before === undefined) for (const listener of this.#listeners) listener({ kind, verb: "held", held });
  }
}

/** Why held deletions ended: applied by a confirming list, by age or by an operator; or not needed any more. */
export type ReleaseReason = "confirmed" | "expired" | "operator" | "refuted";

/** Deletions of a kind were held, or are no longer held. */
export type BrakeEvent =
  | { readonly kind: Kind; readonly verb: "held"; readonly held: HeldDeletions }
  | { readonly kind: Kind; readonly verb: "released"; readonly reason: ReleaseReason };

/** A list with the objects whose deletion is held; `held` is undefined if there are none. */
interface BrakedList {
  readonly objects: ClusterObjects;
  readonly held: HeldBack | undefined;
}

function keyOfChange(change: ObjectChange): readonly [Kind, string] {
  switch (change.kind) {
    case "put-service":
      return ["services", serviceKey(change.service)];
    case "put-slice":
      return ["slices", sliceKey(change.slice)];
    case "put-node":
      return ["nodes", change.node.name];
    case "delete-service":
      return ["services", change.key];
    case "delete-slice":
      return ["slices", change.key];
    case "delete-node":
      return ["nodes", change.name];
    default:
      return assertNever(change);
  }
}

function deletionOf(kind: Kind, key: string): ObjectChange {
  switch (kind) {
    case "services":
      return { kind: "delete-service", key: key as `${string}/${string}` };
    case "slices":
      return { kind: "delete-slice", key: key as `${string}/${string}/${string}` };
    case "nodes":
      return { kind: "delete-node", name: key };
    default:
      return assertNever(kind);
  }
}
