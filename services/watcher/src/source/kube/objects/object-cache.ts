import { wallClockMs } from "@kpng/process/wall-clock.ts";
import { showPath } from "../../decode/decoded.ts";
import type { ObjectChange } from "../../source.ts";
import type { KindHandler, ListTaker } from "../reflector/collection-handler.ts";
import type { KindObserver } from "../reflector/reflector-observer.ts";
import { rawMetadata } from "../request/raw-object.ts";
import type { WatchEvent } from "../request/watch-once.ts";
import { type BrakeOptions, mustBrake } from "./brake.ts";
import type { ChangeQueue } from "./change-queue.ts";
import type { ObjectKind } from "./object-kinds.ts";

/**
 * The objects of one kind as the cluster last had them, reduced to what we use, by the API's namespace and name.
 *
 * The sink knows a slice by its Service too: an object that moves to another Service, or that stops being one we
 * serve, deletes what it was. An object that does not decode leaves its last good value in place and is counted.
 *
 * *Cost:* a map entry per object; the values are the ones that the store holds.
 */
export class HeldObjects<T> implements KindHandler {
  readonly #kind: ObjectKind<T>;
  readonly #queue: ChangeQueue;
  readonly #observer: KindObserver;
  readonly #brake: BrakeOptions;
  #held = new Map<string, T>();
  /** Why objects are passed over: said once for each. */
  readonly #passedOver = new Map<string, string>();

  constructor(kind: ObjectKind<T>, queue: ChangeQueue, observer: KindObserver, brake: BrakeOptions = {}) {
    this.#kind = kind;
    this.#queue = queue;
    this.#observer = observer;
    this.#brake = brake;
  }

  beginList(): ListTaker {
    const listed = new Map<string, T>();
    let receivedAtMs: number | undefined;
    return {
      add: (object) => {
        receivedAtMs ??= wallClockMs();
        const key = rawMetadata(object)?.key ?? "";
        const value = this.#decode(key, object);
        if (value !== undefined) listed.set(key, value);
      },
      complete: (isConfirmed) => {
        const heldCount = this.#held.size;
        const deletedCount = [...this.#held.keys()].filter((key) => !listed.has(key)).length;
        if (!isConfirmed && mustBrake(heldCount, deletedCount, this.#brake)) {
          return { kind: "braked", heldCount, deletedCount };
        }
        this.#held = listed;
        this.#queue.replace(this.#kind.all([...listed.values()]), receivedAtMs);
        return { kind: "taken" };
      },
    };
  }

  apply(events: readonly WatchEvent[], receivedAtMs: number): void {
    this.#queue.push(
      events.flatMap((event) => this.#changesOf(event)),
      receivedAtMs,
    );
  }

  #changesOf(event: WatchEvent): readonly ObjectChange[] {
    if (event.kind === "bookmark") return [];
    const old = this.#held.get(event.key);
    const value = event.kind === "put" ? this.#decode(event.key, event.object) : undefined;
    if (event.kind === "delete") this.#passedOver.delete(event.key);
    if (value === old) return [];
    const changes: ObjectChange[] = [];
    if (old !== undefined && (value === undefined || this.#kind.keyOf(value) !== this.#kind.keyOf(old))) {
      changes.push(this.#kind.delete(old));
    }
    if (value === undefined) this.#held.delete(event.key);
    else {
      this.#held.set(event.key, value);
      changes.push(this.#kind.put(value));
    }
    return changes;
  }

  /** The value of an object; the one that is held if it is bad, undefined if it is nothing that a proxy serves. */
  #decode(key: string, object: unknown): T | undefined {
    const decoded = this.#kind.decode(object);
    switch (decoded.kind) {
      case "ok":
        this.#passedOver.delete(key);
        return decoded.value;
      case "skip":
        if (this.#passedOver.get(key) !== decoded.note) this.#observer.passedOver(key, decoded.note);
        this.#passedOver.set(key, decoded.note);
        return undefined;
      default:
        this.#observer.bad(key, `${showPath(decoded.path)}: ${decoded.problem}`);
        return this.#held.get(key);
    }
  }
}
