import type { NodeView } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { diffViews } from "../state/diff-views.ts";
import { touchedServices } from "../state/touched-services.ts";
import type { ViewUpdate } from "../state/view-state.ts";

/**
 * Merges the updates that arrive while a backend is busy into one.
 *
 * Holds the newest view and the keys of the Services that changed since the last success, never a list of updates.
 */
export class PendingUpdate {
  #delivered: NodeView | undefined;
  #newest: ViewUpdate | undefined;
  #touched = new Set<ServiceKey>();
  #isRetry = false;

  add(update: ViewUpdate): void {
    this.#newest = update;
    for (const key of touchedServices(update.changes)) this.#touched.add(key);
  }

  /**
   * Returns how the newest view differs from the last one that was delivered; undefined if there is nothing to do. After
   * a failure there is always something, even if the view went back to what it was.
   *
   * Exactly one of `delivered` and `failed` must follow before the next call.
   */
  take(): Delivery | undefined {
    const update = this.#newest;
    if (update === undefined) return undefined;
    const from = this.#delivered ?? { nodeName: update.view.nodeName, services: new Map() };
    const touched = this.#touched;
    const changes = diffViews(from, update.view, touched);
    const isFirst = this.#delivered === undefined;
    if (changes.length === 0 && !isFirst && !this.#isRetry) {
      this.#newest = undefined;
      return undefined;
    }
    this.#newest = undefined;
    this.#touched = new Set();
    return {
      update: { ...update, changes, isFirst },
      delivered: () => {
        this.#delivered = update.view;
        this.#isRetry = false;
      },
      failed: () => {
        this.#newest ??= update;
        this.#touched = this.#touched.union(touched);
        this.#isRetry = true;
      },
    };
  }
}

export interface Delivery {
  readonly update: ViewUpdate;
  delivered(): void;
  failed(): void;
}
