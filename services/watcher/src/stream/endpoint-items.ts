import { toBinary } from "@bufbuild/protobuf";
import type { Endpoint } from "@kpng/model/endpoint.ts";
import { EndpointSchema, ServiceSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import { getOrMake } from "@kpng/model/get-or-make.ts";
import type { FamilyFlags } from "@kpng/model/node-view.ts";
import { type Service, serviceKey } from "@kpng/model/service.ts";
import { encodeExtendedEndpoint, encodeKpngEndpoint } from "@kpng/model/wire/endpoint-message.ts";
import { encodeService } from "@kpng/model/wire/service-message.ts";
import type { MergedEndpoint } from "../view/merge-slices.ts";
import { type Uses, viewEndpoints } from "../view/view-endpoints.ts";
import { anonymousSection, makeItem, podSection, serviceSection } from "./local-units.ts";
import type { Item } from "./projection.ts";

/** Whom an endpoint's items are for. */
export interface EndpointForm {
  readonly isExtended: boolean;
  /** The endpoint runs on the node that is told of it. */
  readonly isOnNode: boolean;
}

/**
 * The items of an endpoint that is used in these ways: the same objects each time, as long as Service and endpoint are
 * what they are. With `isKept` false they are only looked up: what is not there is made, and nobody else gets it.
 *
 * *Bound:* for each endpoint as many as there are ways to use it that somebody asked for, which are few.
 */
export function endpointItems(
  service: Service,
  one: MergedEndpoint,
  uses: Uses,
  form: EndpointForm,
  isKept = true,
): readonly Item[] {
  const ofService = getOrMake(madeItems, service, () => new WeakMap<Endpoint, Made>());
  const first = ofService.get(one.endpoint);
  const name = formName(uses, form);
  for (let made = first; made !== undefined; made = made.next) {
    if (made.name === name && made.slice === one.slice.name && made.hasPodKeys === one.slice.hasPodKeys) {
      return made.items;
    }
  }
  const items = makeItems(service, one, uses, form, isKept);
  if (isKept) {
    const { name: slice, hasPodKeys } = one.slice;
    ofService.set(one.endpoint, { name, slice, hasPodKeys, items, next: first });
  }
  return items;
}

const madeItems = new WeakMap<Service, WeakMap<Endpoint, Made>>();

interface Made {
  readonly name: string;
  readonly slice: string;
  readonly hasPodKeys: boolean;
  readonly items: readonly Item[];
  readonly next: Made | undefined;
}

/** *Shape:* a digit for whom it is for, and one for the use of each facet. */
function formName(uses: Uses, { isExtended, isOnNode }: EndpointForm): string {
  let name = String((isExtended ? 2 : 0) + (isOnNode ? 1 : 0));
  for (const use of uses) name += use === undefined ? 0 : 1 + (use.cluster ? 2 : 0) + (use.local ? 4 : 0);
  return name;
}

function makeItems(
  service: Service,
  one: MergedEndpoint,
  uses: Uses,
  { isExtended, isOnNode }: EndpointForm,
  isKept: boolean,
): Item[] {
  const path = serviceKey(service);
  return viewEndpoints(service, one, uses, isOnNode).flatMap((endpoint) => {
    // A reader that ignores Scopes uses all that it gets for cluster IPs: what must not be used there is left out.
    if (!isExtended && !endpoint.scopes.internal) return [];
    const encoded = isExtended ? encodeExtendedEndpoint(endpoint, service) : encodeKpngEndpoint(endpoint, service);
    const section = endpoint.podName === "" ? anonymousSection : podSection;
    return [makeItem(section, `${path}/${endpoint.key}`, toBinary(EndpointSchema, encoded), isKept)];
  });
}

/** The item of the Service itself, the same object for the same flags. */
export function serviceItem(service: Service, portHasEndpoints: readonly FamilyFlags[], isExtended: boolean): Item {
  const name = isExtended ? portHasEndpoints.map(({ v4, v6 }) => (v4 ? 2 : 0) + (v6 ? 1 : 0)).join("") : "plain";
  const ofService = getOrMake(madeServices, service, () => new Map<string, Item>());
  return getOrMake(ofService, name, () => {
    const message = encodeService(service, isExtended ? { portHasEndpoints } : undefined);
    return makeItem(serviceSection, serviceKey(service), toBinary(ServiceSchema, message));
  });
}

const madeServices = new WeakMap<Service, Map<string, Item>>();
