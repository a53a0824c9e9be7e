import type { NodeView, ServiceView } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import type { Batch } from "../types/batch.ts";
import type { ViewUpdate } from "../types/view-update.ts";
import { diffViews } from "./diff-views.ts";
import { sameValue } from "./same-value.ts";
import { SortedMap } from "./sorted-map.ts";
import { StagedView } from "./staged-view.ts";
import { ViewBrake } from "./view-brake.ts";

/** A view whose Services are in a map that shares unchanged parts between versions. */
interface HeldView extends NodeView {
  readonly services: SortedMap<ServiceKey, ServiceView>;
}

/**
 * Holds the view of a node across reconnections, and is the only place that changes it.
 *
 * A whole view (a batch with Reset) does not discard the old one: both are compared, so that the update has only the
 * real differences, including deletions. `followView` applies each batch to it, and `loadView` a view saved on disk. It
 * combines three parts: `StagedView` applies one batch, `ViewBrake` decides which Services to keep although the watcher
 * no longer offers them, `diffViews` finds the differences.
 */
export class ViewState {
  readonly #brake: ViewBrake;
  /** The view that the watcher offered, without kept Services. */
  #offered: HeldView;
  /** The offered view and the Services that the brake keeps. */
  #held: HeldView;
  #last: Pick<ViewUpdate, "revision" | "instance"> | undefined;

  /** `brake` keeps Services that the view of another watcher lacks. Default: none. */
  constructor(nodeName: string, brake: ViewBrake = new ViewBrake({ holdMs: 0 })) {
    this.#brake = brake;
    this.#offered = emptyView(nodeName);
    this.#held = this.#offered;
  }

  /** Empty before the first batch. */
  get view(): NodeView {
    return this.#held;
  }

  /**
   * Applies a batch as a whole.
   *
   * Errors: BAD_STREAM if the batch is invalid; the view is unchanged then.
   */
  apply(batch: Pick<Batch, "isReset" | "isResumed" | "changes" | "revision" | "instance" | "arrival">): ViewUpdate {
    const before = this.#offered;
    const staged = new StagedView(batch.isReset ? emptyView(before.nodeName) : before);
    for (const change of batch.changes) staged.apply(change);
    const services = new Map(staged.services(before));
    if (batch.isReset) {
      for (const key of before.services.keys()) if (!services.has(key)) services.set(key, undefined);
    }
    const touched = [...services].filter(([key, service]) => service !== before.services.get(key));
    this.#offered = {
      nodeName: before.nodeName,
      node: sameValue(before.node, staged.node) ? before.node : staged.node,
      services: touched.length === 0 ? before.services : before.services.with(new Map(touched)),
    };
    const wasKept = this.#brake.kept;
    const isStart = batch.isReset || batch.isResumed === true;
    this.#brake.decide(this.#held.services, this.#offered.services, batch.instance, isStart);
    return this.#update([...touched.map(([key]) => key), ...wasKept.keys()], batch);
  }

  /** Deletes the Services that the brake keeps. Returns undefined if there are none. */
  release(): ViewUpdate | undefined {
    const keys = [...this.#brake.kept.keys()];
    if (keys.length === 0 || this.#last === undefined) return undefined;
    this.#brake.release();
    return this.#update(keys, { ...this.#last, arrival: undefined });
  }

  /** Combines the watcher's view with the kept Services. `touched` names the Services that may have changed. */
  #update(
    touched: readonly ServiceKey[],
    { revision, instance, arrival }: Pick<ViewUpdate, "revision" | "instance" | "arrival">,
  ): ViewUpdate {
    const before = this.#held;
    const { kept } = this.#brake;
    const keys = new Set([...touched, ...kept.keys()]);
    const valueAt = (key: ServiceKey): ServiceView | undefined => kept.get(key) ?? this.#offered.services.get(key);
    // Without kept Services both views are one object, which needs no second map.
    const view =
      kept.size === 0
        ? this.#offered
        : { ...this.#offered, services: before.services.with(new Map([...keys].map((key) => [key, valueAt(key)]))) };
    const changes = diffViews(before, view, keys);
    const isFirst = this.#last === undefined;
    this.#held = view;
    this.#last = { revision, instance };
    return { view, changes, isFirst, revision, instance, arrival };
  }
}

function emptyView(nodeName: string): HeldView {
  return { nodeName, node: undefined, services: SortedMap.from<ServiceKey, ServiceView>([]) };
}
