import type { NodeView } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { diffViews } from "../state/diff-views.ts";
import { touchedServices } from "../state/touched-services.ts";
import { mergeArrivals } from "../types/arrival.ts";
import type { SyncUpdate } from "../types/sync-update.ts";
import type { ViewUpdate } from "../types/view-update.ts";

/**
 * Merges the updates that arrive while a backend is busy into one.
 *
 * Holds the newest view and the keys of the Services that changed since the last success, never a list of updates.
 */
export class PendingUpdate {
  #delivered: ViewUpdate | undefined;
  #newest: ViewUpdate | undefined;
  #touched = new Set<ServiceKey>();
  /** Why the next delivery is a full one. */
  #fullReason = "start";
  #isRequired = false;

  /** True if something waits, even if it may prove to change nothing. */
  get isWaiting(): boolean {
    return this.#newest !== undefined;
  }

  add(update: ViewUpdate): void {
    this.#newest = { ...update, arrival: mergeArrivals(this.#newest?.arrival, update.arrival) };
    for (const key of touchedServices(update.changes)) this.#touched.add(key);
  }

  /** True from the first delivery that succeeded. */
  get hasDelivered(): boolean {
    return this.#delivered !== undefined;
  }

  /** Causes a delivery even if the view did not change; does nothing before the first one has succeeded. */
  require(): void {
    if (this.#delivered === undefined) return;
    this.#isRequired = true;
    this.#newest ??= { ...this.#delivered, arrival: undefined };
  }

  /** The same, and makes it a full one. */
  requireFull(reason: string): void {
    if (this.#fullReason === "") this.#fullReason = reason;
    this.require();
  }

  /**
   * Returns how the newest view differs from the last one that was delivered; undefined if nothing waits. After a
   * failure there is always something to do, even if the view went back to what it was.
   *
   * Exactly one of `delivered` and `failed` must follow a delivery that is one, before the next call.
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
        // Without what changed: after the start that is everything, and would be kept until the next change.
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

export interface Delivery {
  readonly kind: "delivery";
  readonly update: SyncUpdate;
  delivered(): void;
  failed(): void;
}

/** What waited changes nothing. */
export interface Unneeded {
  readonly kind: "unneeded";
  readonly update: ViewUpdate;
}
