import type { NodeView } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { diffViews } from "../state/diff-views.ts";
import { touchedServices } from "../state/touched-services.ts";
import { mergeArrivals } from "../types/arrival.ts";
import type { SyncUpdate } from "../types/sync-update.ts";
import type { ViewUpdate } from "../types/view-update.ts";

/**
 * The update that a `SyncLoop` delivers next: all updates that arrive while its backend is busy, merged into one. Each
 * `SyncLoop` has one. Separate from it, because this class knows no time and calls nothing.
 *
 * *Bound:* the newest view, the last delivered view, and the keys of the Services that changed since the last success;
 * never a list of updates.
 */
export class PendingUpdate {
  /** Update of the last successful delivery. */
  #delivered: ViewUpdate | undefined;
  #newest: ViewUpdate | undefined;
  /** Services that changed since the last successful delivery. */
  #touched = new Set<ServiceKey>();
  /** Why the next delivery is full; "" if it is partial. */
  #fullReason = "start";
  #isRequired = false;

  /** True if an update waits, even if it may turn out to change nothing. */
  get isWaiting(): boolean {
    return this.#newest !== undefined;
  }

  /** Merges an update into the one that waits. */
  add(update: ViewUpdate): void {
    this.#newest = { ...update, arrival: mergeArrivals(this.#newest?.arrival, update.arrival) };
    for (const key of touchedServices(update.changes)) this.#touched.add(key);
  }

  /** True from the first delivery that succeeded. */
  get hasDelivered(): boolean {
    return this.#delivered !== undefined;
  }

  /** Requires a delivery even if the view did not change. Has no effect before the first successful delivery. */
  require(): void {
    if (this.#delivered === undefined) return;
    this.#isRequired = true;
    this.#newest ??= { ...this.#delivered, arrival: undefined };
  }

  /** Requires a delivery, and makes it full. */
  requireFull(reason: string): void {
    if (this.#fullReason === "") this.#fullReason = reason;
    this.require();
  }

  /**
   * Takes the waiting update, with its changes since the last delivered view; undefined if no update waits. After a
   * failure there is always a delivery, even if the view is again the same as the last delivered one.
   *
   * After a delivery, exactly one of its `delivered` and `failed` must be called before the next `take`.
   */
  take(): Delivery | Unneeded | undefined {
    const update = this.#newest;
    if (update === undefined) return undefined;
    const from: NodeView = this.#delivered?.view ?? { nodeName: update.view.nodeName, services: new Map() };
    const touched = this.#touched;
    const changes = diffViews(from, update.view, touched);
    const isFirst = this.#delivered === undefined;
    const fullReason = this.#fullReason;
    this.#newest = undefined;
    if (changes.length === 0 && fullReason === "" && !this.#isRequired) return { kind: "unneeded", update };
    this.#isRequired = false;
    this.#touched = new Set();
    this.#fullReason = "";
    return {
      kind: "delivery",
      update: { ...update, changes, isFirst, mode: fullReason === "" ? "partial" : "full", fullReason },
      delivered: () => {
        // Without the changes: those of the first update are the whole view, and would use memory until the next
        // change.
        this.#delivered = { ...update, changes: [] };
      },
      failed: () => {
        this.#newest = { ...(this.#newest ?? update), arrival: mergeArrivals(update.arrival, this.#newest?.arrival) };
        this.#touched = this.#touched.union(touched);
        this.#fullReason = "failure";
      },
    };
  }
}

/** An update for the backend. */
export interface Delivery {
  readonly kind: "delivery";
  readonly update: SyncUpdate;
  /** Records that the backend has put the update into effect. */
  delivered(): void;
  /** Records that it failed: the next delivery is full and contains these changes as well. */
  failed(): void;
}

/** The waiting updates cancelled each other out. */
export interface Unneeded {
  readonly kind: "unneeded";
  readonly update: ViewUpdate;
}
