import { toBinary } from "@bufbuild/protobuf";
import type { EndpointSlice } from "@kpng/model/endpoint.ts";
import { ServiceSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import type { FamilyFlags } from "@kpng/model/node-view.ts";
import { type Service, serviceKey } from "@kpng/model/service.ts";
import { endpointBytes } from "@kpng/model/wire/endpoint-message.ts";
import { encodeService } from "@kpng/model/wire/service-message.ts";
import type { MergedEndpoint } from "../view/merge-slices.ts";
import { type Uses, viewEndpoints } from "../view/service-view.ts";
import { anonymousSection, type Item, makeItem, podSection, serviceSection } from "./item.ts";

/**
 * The items of a Service and its endpoints, encoded at first use. Calls with equal arguments return the same objects,
 * unless `isOnNode` is true. An endpoint has several variants, because its bytes depend on the node's use of it, on
 * `isExtended` and on whether it runs on the node. The cache of the Service's next state takes over the items of all
 * endpoints that did not change.
 *
 * *Bound:* for each endpoint, the variants that were requested, which are few.
 */
export class ItemCache {
  readonly #service: Service;
  readonly #slices: readonly EndpointSlice[];
  /** Indexed by slice, and then by endpoint within the slice. */
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

  /**
   * Returns the cached variants for the same endpoints. This works because an unchanged endpoint stays the same object
   * in the store.
   */
  #variantsOf(slice: EndpointSlice): (CachedVariant | undefined)[] | undefined {
    const sameAt = this.#slices.indexOf(slice);
    if (sameAt >= 0) return this.#variants[sameAt];
    // The paths of the items depend on both of these fields.
    const at = this.#slices.findIndex(({ name, hasPodKeys }) => name === slice.name && hasPodKeys === slice.hasPodKeys);
    const variants = this.#variants[at];
    const indexes = new Map(this.#slices[at]?.endpoints.map((endpoint, index) => [endpoint, index]));
    return variants && slice.endpoints.map((endpoint) => variants[indexes.get(endpoint) ?? -1]);
  }

  /**
   * Returns the items of an endpoint in one variant. The items for the node on which the endpoint runs are not cached,
   * because only this node needs them, and those of all nodes would double the memory.
   */
  ofEndpoint(one: MergedEndpoint, uses: Uses, variant: EndpointVariant): readonly Item[] {
    if (variant.isOnNode) return this.#encodeEndpoint(one, uses, variant);
    const variants = this.#variants[this.#slices.indexOf(one.slice)];
    const first = variants?.[one.index];
    const key = endpointVariantKey(uses, variant.isExtended);
    const cached = find(first, key);
    if (cached !== undefined) return cached;
    const encoded = this.#encodeEndpoint(one, uses, variant);
    if (variants === undefined) return encoded;
    // Copying removes spare capacity: an array that has grown has room for 16 more elements, and there is one array per
    // endpoint.
    const items = encoded.slice();
    variants[one.index] = { key, items, next: first };
    return items;
  }

  /** Returns the item of the Service itself, as a list. */
  ofService(portHasEndpoints: readonly FamilyFlags[], isExtended: boolean): readonly Item[] {
    // The key has one digit for each port.
    const key = isExtended ? portHasEndpoints.map(({ v4, v6 }) => (v4 ? 2 : 0) + (v6 ? 1 : 0)).join("") : "plain";
    const cached = find(this.#serviceVariants, key);
    if (cached !== undefined) return cached;
    const message = encodeService(this.#service, isExtended ? { portHasEndpoints } : undefined);
    const items = [makeItem(serviceSection, serviceKey(this.#service), toBinary(ServiceSchema, message))];
    this.#serviceVariants = { key, items, next: this.#serviceVariants };
    return items;
  }

  #encodeEndpoint(one: MergedEndpoint, uses: Uses, { isExtended, isOnNode }: EndpointVariant): readonly Item[] {
    const service = this.#service;
    const path = serviceKey(service);
    return viewEndpoints(service, one, uses, isOnNode).flatMap((endpoint) => {
      // A reader that ignores Scopes uses every endpoint for cluster IPs, so it gets only endpoints for cluster IPs.
      if (!isExtended && !endpoint.scopes.internal) return [];
      const section = endpoint.podName === "" ? anonymousSection : podSection;
      return [makeItem(section, `${path}/${endpoint.key}`, endpointBytes(endpoint, service, isExtended))];
    });
  }
}

/**
 * The items of one endpoint, or of a Service, in one variant. The variants form a linked list, because nearly all
 * endpoints have only one or two.
 */
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

/** Properties of an endpoint, other than its uses, on which its encoding depends. */
interface EndpointVariant {
  readonly isExtended: boolean;
  /** True if the endpoint runs on the node that receives the item. */
  readonly isOnNode: boolean;
}

/** *Shape:* one digit for `isExtended`, then one for each use. */
function endpointVariantKey(uses: Uses, isExtended: boolean): string {
  let key = isExtended ? "1" : "0";
  for (const use of uses) key += use === undefined ? 0 : 1 + (use.cluster ? 2 : 0) + (use.local ? 4 : 0);
  return key;
}
