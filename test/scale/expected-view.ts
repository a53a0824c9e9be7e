import { toBinary } from "@bufbuild/protobuf";
import { EndpointSchema, ServiceSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import { serviceKey } from "@kpng/model/service.ts";
import { encodeExtendedEndpoint, encodeKpngEndpoint } from "@kpng/model/testing/endpoint-messages.ts";
import { encodeService } from "@kpng/model/wire/service-message.ts";
import { type Snapshot, slicesOf } from "../../services/watcher/src/store/snapshot.ts";
import { choosingNode } from "../../services/watcher/src/view/node.ts";
import { makeServiceView } from "../../services/watcher/src/view/service-view.ts";
import { digestView, type ViewDigest } from "./held-view.ts";

/**
 * Returns what a subscriber must hold after receiving a whole snapshot. Each Service is computed separately, without
 * the data that streams share or cache.
 */
export function expectedView(snapshot: Snapshot, nodeName: string, isExtended: boolean): ViewDigest {
  const items: (readonly [string, Uint8Array])[] = [];
  const node = choosingNode(snapshot, nodeName);
  for (const service of snapshot.services.values()) {
    const view = makeServiceView(service, slicesOf(snapshot, serviceKey(service)), node);
    const path = serviceKey(service);
    items.push([path, toBinary(ServiceSchema, encodeService(service, isExtended ? view : undefined))]);
    for (const endpoint of view.endpoints) {
      // A reader that ignores Scopes uses every endpoint for cluster IPs, so the others must be omitted.
      if (!isExtended && !endpoint.scopes.internal) continue;
      const message = isExtended ? encodeExtendedEndpoint(endpoint, service) : encodeKpngEndpoint(endpoint, service);
      items.push([`${path}/${endpoint.key}`, toBinary(EndpointSchema, message)]);
    }
  }
  return digestView(items);
}
