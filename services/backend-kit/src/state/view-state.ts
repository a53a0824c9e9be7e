import type { NodeView, ServiceView } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import type { Batch } from "../types/batch.ts";
import type { ViewUpdate } from "../types/view-update.ts";
import { diffViews } from "./diff-views.ts";
import { sameValue } from "./same-value.ts";
import { SortedMap } from "./sorted-map.ts";
import { StagedView } from "./staged-view.ts";

/** A view whose Services are in a map that shares unchanged parts between versions. */
interface HeldView extends NodeView {
  readonly services: SortedMap<ServiceKey, ServiceView>;
}

/**
 * Holds the view of a node across reconnections, and is the only place that changes it.
 *
 * A whole view (a batch with Reset) does not discard the old one: both are compared, so that the update has only the
 * real differences, including deletions. `followView` applies each batch to it, and `loadView` a view saved on disk.
 */
export class ViewState {
  #held: HeldView;
  #isFirst = true;

  constructor(nodeName: string) {
    this.#held = emptyView(nodeName);
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
  apply({ isReset, changes, revision, instance, arrival }: AppliedBatch): ViewUpdate {
    const before = this.#held;
    const staged = new StagedView(isReset ? emptyView(before.nodeName) : before);
    for (const change of changes) staged.apply(change);
    const services = new Map(staged.services(before));
    if (isReset) {
      for (const key of before.services.keys()) if (!services.has(key)) services.set(key, undefined);
    }
    const touched = [...services].filter(([key, service]) => service !== before.services.get(key));
    const view = {
      nodeName: before.nodeName,
      node: sameValue(before.node, staged.node) ? before.node : staged.node,
      services: touched.length === 0 ? before.services : before.services.with(new Map(touched)),
    };
    const keys = new Set(touched.map(([key]) => key));
    const update = {
      view,
      changes: diffViews(before, view, keys),
      isFirst: this.#isFirst,
      revision,
      instance,
      arrival,
    };
    this.#held = view;
    this.#isFirst = false;
    return update;
  }
}

type AppliedBatch = Pick<Batch, "isReset" | "changes" | "revision" | "instance" | "arrival">;

function emptyView(nodeName: string): HeldView {
  return { nodeName, node: undefined, services: SortedMap.from<ServiceKey, ServiceView>([]) };
}
