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

/** Items of one endpoint, or of the Service, in one form; and those in other forms. */
interface Made {
  readonly form: string;
  readonly items: readonly Item[];
  readonly next: Made | undefined;
}

/**
 * The items of a Service and its endpoints: made when they are asked for first, and the same objects from then on. What
 * comes after it, where only some endpoints are others, begins with all that was made of the same ones.
 *
 * *Bound:* for each endpoint as many as there are ways to use it that somebody asked for, which are few.
 */
export class ItemCache {
  readonly #service: Service;
  readonly #endpoints: readonly MergedEndpoint[];
  /** By the index of the endpoint. */
  readonly #made: (Made | undefined)[];
  #ofService: Made | undefined;

  constructor(service: Service, endpoints: readonly MergedEndpoint[], before?: ItemCache) {
    this.#service = service;
    this.#endpoints = endpoints;
    if (before === undefined || before.#service !== service) {
      this.#made = new Array<undefined>(endpoints.length);
    } else {
      this.#made = before.#madeOf(endpoints);
      this.#ofService = before.#ofService;
    }
  }

  /** What is made of the same endpoints. The identity of an endpoint is kept by the store as long as nothing of it changes. */
  #madeOf(endpoints: readonly MergedEndpoint[]): (Made | undefined)[] {
    const indexes = new Map(this.#endpoints.map(({ endpoint, index }) => [endpoint, index]));
    return endpoints.map(({ endpoint, slice }) => {
      const index = indexes.get(endpoint) ?? -1;
      const old = this.#endpoints[index]?.slice;
      // Both are part of the items' paths.
      return old?.name === slice.name && old.hasPodKeys === slice.hasPodKeys ? this.#made[index] : undefined;
    });
  }

  /** With `isKept` false they are only looked up: what is not there is made, and nobody else gets it. */
  ofEndpoint(one: MergedEndpoint, uses: Uses, form: EndpointVariant, isKept = true): readonly Item[] {
    const first = this.#made[one.index];
    const name = endpointVariantKey(uses, form);
    const held = find(first, name);
    if (held !== undefined) return held;
    const made = makeEndpointItems(this.#service, one, uses, form, isKept);
    if (!isKept) return made;
    // As long as it must be: there is a list for each endpoint, and one that grew has room for 16 more.
    const items = made.slice();
    this.#made[one.index] = { form: name, items, next: first };
    return items;
  }

  ofService(portHasEndpoints: readonly FamilyFlags[], isExtended: boolean): readonly Item[] {
    const form = serviceVariantKey(portHasEndpoints, isExtended);
    const held = find(this.#ofService, form);
    if (held !== undefined) return held;
    const items = [makeServiceItem(this.#service, portHasEndpoints, isExtended)];
    this.#ofService = { form, items, next: this.#ofService };
    return items;
  }
}

function find(first: Made | undefined, form: string): readonly Item[] | undefined {
  for (let made = first; made !== undefined; made = made.next) if (made.form === form) return made.items;
  return undefined;
}
