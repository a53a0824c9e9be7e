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

/** Whom an endpoint's items are for. */
export interface EndpointVariant {
  readonly isExtended: boolean;
  /** The endpoint runs on the node that is told of it. */
  readonly isOnNode: boolean;
}

/** *Shape:* a digit for whom it is for, and one for the use of each facet: the same for the same items of an endpoint. */
export function endpointVariantKey(uses: Uses, { isExtended, isOnNode }: EndpointVariant): string {
  let name = String((isExtended ? 2 : 0) + (isOnNode ? 1 : 0));
  for (const use of uses) name += use === undefined ? 0 : 1 + (use.cluster ? 2 : 0) + (use.local ? 4 : 0);
  return name;
}

/** The items of an endpoint that is used in these ways. With `isKept` false they must not be held on to; see makeItem. */
export function makeEndpointItems(
  service: Service,
  one: MergedEndpoint,
  uses: Uses,
  { isExtended, isOnNode }: EndpointVariant,
  isKept: boolean,
): readonly Item[] {
  const path = serviceKey(service);
  return viewEndpoints(service, one, uses, isOnNode).flatMap((endpoint) => {
    // A reader that ignores Scopes uses all that it gets for cluster IPs: what must not be used there is left out.
    if (!isExtended && !endpoint.scopes.internal) return [];
    const section = endpoint.podName === "" ? anonymousSection : podSection;
    return [makeItem(section, `${path}/${endpoint.key}`, endpointBytes(endpoint, service, isExtended), isKept)];
  });
}

/** *Shape:* a digit for each port, or "plain": the same for the same item of a Service. */
export function serviceVariantKey(portHasEndpoints: readonly FamilyFlags[], isExtended: boolean): string {
  return isExtended ? portHasEndpoints.map(({ v4, v6 }) => (v4 ? 2 : 0) + (v6 ? 1 : 0)).join("") : "plain";
}

/** The item of the Service itself. */
export function makeServiceItem(service: Service, portHasEndpoints: readonly FamilyFlags[], isExtended: boolean): Item {
  const message = encodeService(service, isExtended ? { portHasEndpoints } : undefined);
  return makeItem(serviceSection, serviceKey(service), toBinary(ServiceSchema, message));
}
