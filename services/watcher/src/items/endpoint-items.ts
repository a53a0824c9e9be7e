import { toBinary } from "@bufbuild/protobuf";
import { ServiceSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import type { FamilyFlags } from "@kpng/model/node-view.ts";
import { type Service, serviceKey } from "@kpng/model/service.ts";
import { endpointBytes } from "@kpng/model/wire/endpoint-bytes.ts";
import { encodeService } from "@kpng/model/wire/service-message.ts";
import type { MergedEndpoint } from "../view/merge-slices.ts";
import { type Uses, viewEndpoints } from "../view/view-endpoints.ts";
import type { Item } from "./item.ts";
import { anonymousSection, makeItem, podSection, serviceSection } from "./node-view-items.ts";

/**
 * Encodes an endpoint as items: objects as a stream carries them. `uses` states which ports of the endpoint a node
 * uses; all subscribers with the same uses and variant get the same bytes. With `isKept` false, the caller must not
 * keep the items; see makeItem.
 *
 * `ItemCache` calls the functions of this file, and keeps their results. Separate from it, because they are pure. Which
 * endpoints a node uses is decided before, by `ClassChoice`.
 */
export function makeEndpointItems(
  service: Service,
  one: MergedEndpoint,
  uses: Uses,
  { isExtended, isOnNode }: EndpointVariant,
  isKept: boolean,
): readonly Item[] {
  const path = serviceKey(service);
  return viewEndpoints(service, one, uses, isOnNode).flatMap((endpoint) => {
    // A reader that ignores Scopes uses every endpoint for cluster IPs, so it gets only endpoints for cluster IPs.
    if (!isExtended && !endpoint.scopes.internal) return [];
    const section = endpoint.podName === "" ? anonymousSection : podSection;
    return [makeItem(section, `${path}/${endpoint.key}`, endpointBytes(endpoint, service, isExtended), isKept)];
  });
}

/** The circumstances, other than its use, on which the encoding of an endpoint depends. */
export interface EndpointVariant {
  readonly isExtended: boolean;
  /** The endpoint runs on the node that receives the item. */
  readonly isOnNode: boolean;
}

/** Returns a key that is equal for equal items of one endpoint. *Shape:* a digit for the variant, one for each use. */
export function endpointVariantKey(uses: Uses, { isExtended, isOnNode }: EndpointVariant): string {
  let key = String((isExtended ? 2 : 0) + (isOnNode ? 1 : 0));
  for (const use of uses) key += use === undefined ? 0 : 1 + (use.cluster ? 2 : 0) + (use.local ? 4 : 0);
  return key;
}

/** Returns a key that is equal for equal items of one Service. *Shape:* a digit for each port, or "plain". */
export function serviceVariantKey(portHasEndpoints: readonly FamilyFlags[], isExtended: boolean): string {
  return isExtended ? portHasEndpoints.map(({ v4, v6 }) => (v4 ? 2 : 0) + (v6 ? 1 : 0)).join("") : "plain";
}

/** Encodes the Service itself. */
export function makeServiceItem(service: Service, portHasEndpoints: readonly FamilyFlags[], isExtended: boolean): Item {
  const message = encodeService(service, isExtended ? { portHasEndpoints } : undefined);
  return makeItem(serviceSection, serviceKey(service), toBinary(ServiceSchema, message));
}
