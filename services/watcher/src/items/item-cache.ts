import type { EndpointSlice } from "@kpng/model/endpoint.ts";
import type { FamilyFlags } from "@kpng/model/node-view.ts";
import type { Service } from "@kpng/model/service.ts";
import type { MergedEndpoint } from "../view/merge-slices.ts";
import type { Uses } from "../view/view-endpoints.ts";
import {
  type EndpointVariant,
  endpointVariantKey,
  makeEndpointItems,
  makeServiceItem,
  serviceVariantKey,
} from "./endpoint-items.ts";
import type { Item } from "./item.ts";

/**
 * The items of a Service and its endpoints, encoded at first use; equal arguments return the same objects. An endpoint
 * has several variants: its bytes depend on the node's use of it, on `isExtended` and on whether it runs on the node.
 *
 * Each `ServiceState` has one, and `serviceOverlay` asks it for the items that only one node receives. Separate from
 * `ServiceState`, because the next state's cache takes over the items of all endpoints that did not change.
 *
 * *Bound:* for each endpoint, the variants that were requested, which are few.
 */
export class ItemCache {
  readonly #service: Service;
  readonly #slices: readonly EndpointSlice[];
  /** By the index of the slice, and of the endpoint in it. */
  readonly #variants: readonly (CachedVariant | undefined)[][];
  #serviceVariants: CachedVariant | undefined;

  constructor(service: Service, slices: readonly EndpointSlice[], before?: ItemCache) {
    this.#service = service;
    this.#slices = slices;
    const isSame = before !== undefined && before.#service === service;
    this.#variants = slices.map((slice) => {
      return (isSame ? before.#variantsOf(slice) : undefined) ?? new Array<undefined>(slice.endpoints.length);
    });
    if (isSame) this.#serviceVariants = before.#serviceVariants;
  }

  /** Returns what is cached for the same endpoints. The store keeps the identity of an unchanged endpoint. */
  #variantsOf(slice: EndpointSlice): (CachedVariant | undefined)[] | undefined {
    const sameAt = this.#slices.indexOf(slice);
    if (sameAt >= 0) return this.#variants[sameAt];
    // The paths of the items depend on both fields of the slice.
    const at = this.#slices.findIndex(({ name, hasPodKeys }) => name === slice.name && hasPodKeys === slice.hasPodKeys);
    const variants = this.#variants[at];
    const indexes = new Map(this.#slices[at]?.endpoints.map((endpoint, index) => [endpoint, index]));
    return variants && slice.endpoints.map((endpoint) => variants[indexes.get(endpoint) ?? -1]);
  }

  /**
   * Returns the items of an endpoint in one variant. With `isKept` false, for items that are sent at once, newly
   * encoded items are not cached, and the caller must not keep them.
   */
  ofEndpoint(one: MergedEndpoint, uses: Uses, variant: EndpointVariant, isKept = true): readonly Item[] {
    const variants = this.#variants[this.#slices.indexOf(one.slice)];
    const first = variants?.[one.index];
    const key = endpointVariantKey(uses, variant);
    const cached = find(first, key);
    if (cached !== undefined) return cached;
    const encoded = makeEndpointItems(this.#service, one, uses, variant, isKept);
    if (!isKept || variants === undefined) return encoded;
    // A copy without spare capacity: an array that has grown has room for 16 more, and there is one per endpoint.
    const items = encoded.slice();
    variants[one.index] = { key, items, next: first };
    return items;
  }

  /** Returns the item of the Service itself, as a list. */
  ofService(portHasEndpoints: readonly FamilyFlags[], isExtended: boolean): readonly Item[] {
    const key = serviceVariantKey(portHasEndpoints, isExtended);
    const cached = find(this.#serviceVariants, key);
    if (cached !== undefined) return cached;
    const items = [makeServiceItem(this.#service, portHasEndpoints, isExtended)];
    this.#serviceVariants = { key, items, next: this.#serviceVariants };
    return items;
  }
}

/** The items of one endpoint, or of a Service, in one variant. A linked list: nearly all have one or two variants. */
interface CachedVariant {
  readonly key: string;
  readonly items: readonly Item[];
  readonly next: CachedVariant | undefined;
}

function find(first: CachedVariant | undefined, key: string): readonly Item[] | undefined {
  for (let variant = first; variant !== undefined; variant = variant.next) {
    if (variant.key === key) return variant.items;
  }
  return undefined;
}
