import type { NodeView, ServiceView } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import type { Batch } from "../types/batch.ts";
import type { ViewUpdate } from "../types/view-update.ts";
import { diffViews } from "./diff-views.ts";
import { sameValue } from "./same-value.ts";
import { SortedMap } from "./sorted-map.ts";
import { StagedView } from "./staged-view.ts";

/** A view as this module holds it. */
interface HeldView extends NodeView {
  readonly services: SortedMap<ServiceKey, ServiceView>;
}

/**
 * Holds the view of a node through all its streams, and is the only place that changes it.
 *
 * A Reset forgets nothing by itself: the batch that follows it is compared with what is held, and the deletes that a
 * watcher which knows nothing of us cannot send are made here, at its sync marker.
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
   * Errors: BAD_STREAM if it is unsound; what is held is untouched.
   */
  apply(batch: Pick<Batch, "isReset" | "changes" | "revision" | "instance" | "arrival">): ViewUpdate {
    const before = this.#held;
    const staged = new StagedView(batch.isReset ? emptyView(before.nodeName) : before);
    for (const change of batch.changes) staged.apply(change);
    const services = new Map(staged.services(before));
    if (batch.isReset) {
      for (const key of before.services.keys()) if (!services.has(key)) services.set(key, undefined);
    }
    const touched = [...services].filter(([key, service]) => service !== before.services.get(key));
    const view: HeldView = {
      nodeName: before.nodeName,
      node: sameValue(before.node, staged.node) ? before.node : staged.node,
      services: touched.length === 0 ? before.services : before.services.with(new Map(touched)),
    };
    const changes = diffViews(
      before,
      view,
      touched.map(([key]) => key),
    );
    const isFirst = this.#isFirst;
    this.#held = view;
    this.#isFirst = false;
    const { revision, instance, arrival } = batch;
    return { view, changes, isFirst, revision, instance, arrival };
  }
}

function emptyView(nodeName: string): HeldView {
  return { nodeName, node: undefined, services: SortedMap.from<ServiceKey, ServiceView>([]) };
}
