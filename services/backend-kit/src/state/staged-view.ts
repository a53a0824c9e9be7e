import { assertNever } from "@kpng/model/assert-never.ts";
import type { NodeView, ServiceItem, ServiceView, ViewChange, ViewEndpoint, ViewNode } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { compareText } from "@kpng/model/text-order.ts";
import { BackendError } from "../types/backend-error.ts";
import { sameItem } from "./diff-views.ts";
import { sameValue } from "./same-value.ts";

/** A Service while a batch is applied. */
interface StagedService {
  item: ServiceItem;
  readonly endpoints: Map<string, ViewEndpoint>;
}

/**
 * The effect of one batch on a view. `ViewState` applies a batch to it first, and takes the result only if the whole
 * batch is valid. Separate from `ViewState`, because it is discarded after the batch.
 *
 * *Cost:* proportional to the endpoints of the changed Services.
 */
export class StagedView {
  readonly #base: NodeView;
  /** Changed Services; undefined for a deleted one. */
  readonly #services = new Map<ServiceKey, StagedService | undefined>();
  node: ViewNode | undefined;

  constructor(base: NodeView) {
    this.#base = base;
    this.node = base.node;
  }

  /**
   * Applies one change. Deleting an unknown Service or endpoint has no effect.
   *
   * Errors: BAD_STREAM for an endpoint without its Service, and for another node. The base is untouched.
   */
  apply(change: ViewChange): void {
    switch (change.kind) {
      case "put-node":
        // Otherwise the addresses of another node would decide which endpoints and node ports belong to this node.
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
        else this.#services.set(change.key, { item: change.item, endpoints: new Map() });
        return;
      }
      case "delete-service":
        this.#services.set(change.key, undefined);
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

  /**
   * Returns the touched Services; undefined for a deleted one.
   *
   * A Service or endpoint that equals the one in `held` is returned as the same object, so unchanged ones keep their
   * identity.
   */
  services(held: NodeView): ReadonlyMap<ServiceKey, ServiceView | undefined> {
    const views = new Map<ServiceKey, ServiceView | undefined>();
    for (const [key, staged] of this.#services) {
      views.set(key, staged === undefined ? undefined : toView(staged, held.services.get(key)));
    }
    return views;
  }

  #stage(key: ServiceKey): StagedService | undefined {
    if (this.#services.has(key)) return this.#services.get(key);
    const base = this.#base.services.get(key);
    if (base === undefined) return undefined;
    const staged = { item: base, endpoints: new Map(base.endpoints.map((endpoint) => [endpoint.key, endpoint])) };
    this.#services.set(key, staged);
    return staged;
  }
}

function toView({ item, endpoints }: StagedService, held: ServiceView | undefined): ServiceView {
  const heldByKey = new Map(held?.endpoints.map((endpoint) => [endpoint.key, endpoint]));
  const merged = [...endpoints.values()]
    .map((endpoint) => {
      const before = heldByKey.get(endpoint.key);
      return before !== undefined && sameValue(before, endpoint) ? before : endpoint;
    })
    .sort((a, b) => compareText(a.key, b.key));
  const isSame =
    held !== undefined &&
    sameItem(held, item) &&
    merged.length === held.endpoints.length &&
    merged.every((endpoint, index) => endpoint === held.endpoints[index]);
  if (isSame) return held;
  const { service, portHasEndpoints } = item;
  return { service, ...(portHasEndpoints === undefined ? {} : { portHasEndpoints }), endpoints: merged };
}
