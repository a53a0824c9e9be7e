import { assertNever } from "@kpng/model/assert-never.ts";
import type { NodeView, ServiceItem, ServiceView, ViewChange, ViewEndpoint, ViewNode } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { compareText } from "@kpng/model/text-order.ts";
import { BackendError } from "../types/backend-error.ts";
import type { Batch, ViewUpdate } from "../types/sync-update.ts";
import { SortedMap } from "./sorted-map.ts";

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

/** A Service while a batch is applied. */
interface StagedService {
  item: ServiceItem;
  readonly endpoints: Map<string, ViewEndpoint>;
}

/**
 * The effect of one batch on a view. `ViewState` applies a batch to it first, and takes the result only if the whole
 * batch is valid.
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

/**
 * Returns the fewest changes that lead from one view of a node to another. `ViewState` and the sync loop use it to give
 * backends only real differences.
 *
 * The order is node, Services put, endpoints put, endpoints deleted, Services deleted. So an endpoint always has its
 * Service, and a Service keeps an endpoint while its only one is replaced.
 *
 * `touched` names the Services that may differ; the others are not compared.
 *
 * Pure; O(endpoints of the touched Services).
 */
export function diffViews(from: NodeView, to: NodeView, touched: Iterable<ServiceKey>): readonly ViewChange[] {
  const changes: ChangeGroups = { servicePuts: [], endpointPuts: [], endpointDeletes: [], serviceDeletes: [] };
  for (const key of [...touched].sort(compareText)) {
    diffService(key, from.services.get(key), to.services.get(key), changes);
  }
  return [
    ...diffNode(from, to),
    ...changes.servicePuts,
    ...changes.endpointPuts,
    ...changes.endpointDeletes,
    ...changes.serviceDeletes,
  ];
}

interface ChangeGroups {
  readonly servicePuts: ViewChange[];
  readonly endpointPuts: ViewChange[];
  readonly endpointDeletes: ViewChange[];
  readonly serviceDeletes: ViewChange[];
}

function diffNode(from: NodeView, to: NodeView): readonly ViewChange[] {
  if (sameValue(from.node, to.node)) return [];
  return [to.node === undefined ? { kind: "delete-node" } : { kind: "put-node", node: to.node }];
}

function diffService(
  key: ServiceKey,
  from: ServiceView | undefined,
  to: ServiceView | undefined,
  changes: ChangeGroups,
): void {
  if (from === to) return;
  if (to !== undefined && !sameItem(from, to)) {
    changes.servicePuts.push({ kind: "put-service", key, item: itemOf(to) });
  }
  const before = byKey(from);
  const after = byKey(to);
  for (const endpoint of after.values()) {
    if (!sameValue(before.get(endpoint.key), endpoint)) {
      changes.endpointPuts.push({ kind: "put-endpoint", service: key, endpoint });
    }
  }
  for (const endpoint of before.values()) {
    if (!after.has(endpoint.key)) {
      changes.endpointDeletes.push({ kind: "delete-endpoint", service: key, key: endpoint.key });
    }
  }
  if (to === undefined) changes.serviceDeletes.push({ kind: "delete-service", key });
}

/** Returns true if the Services are equal, whatever their endpoints. */
export function sameItem(a: ServiceItem | undefined, b: ServiceItem | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return sameValue(a.service, b.service) && sameValue(a.portHasEndpoints, b.portHasEndpoints);
}

function itemOf({ service, portHasEndpoints }: ServiceView): ServiceItem {
  return portHasEndpoints === undefined ? { service } : { service, portHasEndpoints };
}

function byKey(view: ServiceView | undefined): ReadonlyMap<string, ViewEndpoint> {
  return new Map(view?.endpoints.map((endpoint) => [endpoint.key, endpoint]));
}

/**
 * Returns true if two values of plain data (objects, arrays, strings, numbers, booleans) are deeply equal. `diffViews`,
 * `StagedView` and `ViewState` share it to compare Services, endpoints and nodes.
 *
 * The order of an object's fields does not matter, and an undefined field equals an absent one, unlike for
 * `isDeepStrictEqual` of Node.js.
 */
export function sameValue(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (Array.isArray(a) || Array.isArray(b)) {
    return (
      Array.isArray(a) &&
      Array.isArray(b) &&
      a.length === b.length &&
      a.every((item, index) => sameValue(item, b[index]))
    );
  }
  const left = new Map(Object.entries(a).filter(isDefined));
  const right = Object.entries(b).filter(isDefined);
  return (
    left.size === right.length && right.every(([name, value]) => left.has(name) && sameValue(left.get(name), value))
  );
}

function isDefined([, value]: [string, unknown]): boolean {
  return value !== undefined;
}

/**
 * Returns the keys of the Services that changes put, delete, or change the endpoints of. `serveTask`, `AfterCommit` and
 * `PendingUpdate` share it, to limit their work to these Services.
 */
export function touchedServices(changes: readonly ViewChange[]): ReadonlySet<ServiceKey> {
  const keys = new Set<ServiceKey>();
  for (const change of changes) {
    switch (change.kind) {
      case "put-service":
      case "delete-service":
        keys.add(change.key);
        break;
      case "put-endpoint":
      case "delete-endpoint":
        keys.add(change.service);
        break;
      default:
        break;
    }
  }
  return keys;
}
