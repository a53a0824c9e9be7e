import { isDeepStrictEqual } from "node:util";
import { compareText } from "@kpng/model/collections.ts";
import { assertNever } from "@kpng/model/narrowing.ts";
import type { NodeView, ServiceItem, ServiceView, ViewChange, ViewEndpoint, ViewNode } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { BackendError } from "../types/backend-error.ts";
import type { Batch, ViewUpdate } from "../types/sync-update.ts";
import { SortedMap } from "./sorted-map.ts";

/** A view that keeps its Services in a map whose versions share their unchanged parts. */
interface SortedView extends NodeView {
  readonly services: SortedMap<ServiceKey, ServiceView>;
}

/**
 * Holds the view of a node across reconnections; the view is changed only here.
 *
 * Each batch is applied to a copy of the Services that it names, and the result is taken only if the whole batch is
 * valid. Parts that equal the previous view stay the same objects, so *touched* Services are determined once, here, by
 * object identity; the set travels with the view to the sync loop, the planner and the rule sets. A whole view (a batch
 * with Reset) does not discard the previous view: the two are compared, so that only Services that really differ are
 * touched.
 */
export class ViewState {
  #view: SortedView;
  #isFirst = true;

  constructor(nodeName: string) {
    this.#view = emptyView(nodeName);
  }

  /** Empty before the first batch. */
  get view(): NodeView {
    return this.#view;
  }

  /**
   * Applies a batch as a whole.
   *
   * *Cost:* proportional to the endpoints of the Services in the batch. Errors: BAD_STREAM if the batch is invalid; the
   * view is unchanged then.
   */
  apply({ isReset, changes, revision, instance, arrival }: AppliedBatch): ViewUpdate {
    const before = this.#view;
    const staged = new StagedView(isReset ? emptyView(before.nodeName) : before);
    for (const change of changes) staged.apply(change);
    const differences = new Map<ServiceKey, ServiceView | undefined>();
    const counts = { services: 0, endpoints: 0 };
    const compare = (key: ServiceKey, service: StagedService | undefined): void => {
      const previous = before.services.get(key);
      const after = service && toView(service, previous);
      if (after === previous) return;
      differences.set(key, after);
      addCounts(previous, after, counts);
    };
    for (const [key, service] of staged.services) compare(key, service);
    if (isReset) for (const key of before.services.keys()) if (!staged.services.has(key)) compare(key, undefined);
    const view = {
      nodeName: before.nodeName,
      node: staged.node && reuse(before.node, staged.node),
      services: differences.size === 0 ? before.services : before.services.with(differences),
    };
    const touched = new Set(differences.keys());
    const update = { view, touched, counts, isFirst: this.#isFirst, revision, instance, arrival };
    this.#view = view;
    this.#isFirst = false;
    return update;
  }
}

type AppliedBatch = Pick<Batch, "isReset" | "changes" | "revision" | "instance" | "arrival">;

function emptyView(nodeName: string): SortedView {
  return { nodeName, node: undefined, services: SortedMap.from<ServiceKey, ServiceView>([]) };
}

/** Counts the differences between two views of a Service. Unchanged objects are identical. */
function addCounts(
  before: ServiceView | undefined,
  after: ServiceView | undefined,
  counts: { services: number; endpoints: number },
): void {
  if (before?.service !== after?.service || before?.portHasEndpoints !== after?.portHasEndpoints) counts.services++;
  const [old, now] = [new Set(before?.endpoints), new Set(after?.endpoints)];
  const keys = [...old.symmetricDifference(now)].map(({ key }) => key);
  counts.endpoints += new Set(keys).size;
}

/** The state of a Service while a batch is applied. */
interface StagedService {
  item: ServiceItem;
  readonly endpoints: Map<string, ViewEndpoint>;
}

/** The effect of one batch on a view. */
class StagedView {
  readonly #base: NodeView;
  /** Changed Services; undefined for a deleted Service. */
  readonly services = new Map<ServiceKey, StagedService | undefined>();
  node: ViewNode | undefined;

  constructor(base: NodeView) {
    this.#base = base;
    this.node = base.node;
  }

  /**
   * Applies one change. Deleting an unknown Service or endpoint has no effect.
   *
   * Errors: BAD_STREAM for an endpoint whose Service is unknown, and for a different node. The base view is not
   * changed.
   */
  apply(change: ViewChange): void {
    switch (change.kind) {
      case "put-node":
        // Without this check, the addresses of another node would decide which endpoints and node ports belong to this
        // node.
        if (change.node.name !== this.#base.nodeName) {
          const text = `the watcher sent Node "${change.node.name}" to node "${this.#base.nodeName}"`;
          throw new BackendError("BAD_STREAM", text);
        }
        this.node = change.node;
        return;
      case "delete-node":
        this.node = undefined;
        return;
      case "put-service": {
        const staged = this.#stage(change.key);
        if (staged !== undefined) staged.item = change.item;
        else this.services.set(change.key, { item: change.item, endpoints: new Map() });
        return;
      }
      case "delete-service":
        this.services.set(change.key, undefined);
        return;
      case "put-endpoint": {
        const staged = this.#stage(change.service);
        if (staged === undefined) {
          throw new BackendError(
            "BAD_STREAM",
            `the watcher sent endpoint ${change.endpoint.key} of ${change.service}, a Service that it has not sent`,
          );
        }
        staged.endpoints.set(change.endpoint.key, change.endpoint);
        return;
      }
      case "delete-endpoint":
        this.#stage(change.service)?.endpoints.delete(change.key);
        return;
      default:
        assertNever(change);
    }
  }

  #stage(key: ServiceKey): StagedService | undefined {
    if (this.services.has(key)) return this.services.get(key);
    const base = this.#base.services.get(key);
    if (base === undefined) return undefined;
    const staged = { item: base, endpoints: new Map(base.endpoints.map((endpoint) => [endpoint.key, endpoint])) };
    this.services.set(key, staged);
    return staged;
  }
}

/** Returns the view of a Service. Parts that equal their counterparts in `previous` are the same objects. */
function toView({ item, endpoints }: StagedService, previous: ServiceView | undefined): ServiceView {
  const previousByKey = new Map(previous?.endpoints.map((endpoint) => [endpoint.key, endpoint]));
  const merged = [...endpoints.values()]
    .map((endpoint) => reuse(previousByKey.get(endpoint.key), endpoint))
    .sort((a, b) => compareText(a.key, b.key));
  const service = reuse(previous?.service, item.service);
  const portHasEndpoints = reuse(previous?.portHasEndpoints, item.portHasEndpoints);
  const isSame =
    previous !== undefined &&
    service === previous.service &&
    portHasEndpoints === previous.portHasEndpoints &&
    merged.length === previous.endpoints.length &&
    merged.every((endpoint, index) => endpoint === previous.endpoints[index]);
  if (isSame) return previous;
  return { service, ...(portHasEndpoints === undefined ? {} : { portHasEndpoints }), endpoints: merged };
}

/** Both values come from the same decoder, so that equal ones have the same fields. */
function reuse<Value>(before: Value | undefined, after: Value): Value {
  return before !== undefined && isDeepStrictEqual(before, after) ? before : after;
}
