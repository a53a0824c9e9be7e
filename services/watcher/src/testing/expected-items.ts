import { toBinary } from "@bufbuild/protobuf";
import { EndpointSchema, ServiceSchema, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import { serviceKey } from "@kpng/model/service.ts";
import { encodeExtendedEndpoint, encodeKpngEndpoint } from "@kpng/model/testing/endpoint-messages.ts";
import { encodeService } from "@kpng/model/wire/service-message.ts";
import { setFrame } from "../items/frames.ts";
import { type Item, nodeItems } from "../items/item.ts";
import type { NodeViewRequest } from "../items/view-target.ts";
import { type Snapshot, slicesOf } from "../store/snapshot.ts";
import { choosingNode, makeServiceView } from "../view/service-view.ts";

/**
 * Computes the items of a node from scratch, without caches. The tests of `nodeProjection` and
 * `test/process/reconstruction.test.ts` compare the incremental computation with it.
 */
export function* expectedItems(
  snapshot: Snapshot,
  { nodeName, proxyName, isExtended, wantsNode }: NodeViewRequest,
): Iterable<Item> {
  if (wantsNode) yield* nodeItems(snapshot, nodeName);
  for (const service of snapshot.services.values()) {
    if (service.proxyName !== proxyName) continue;
    const path = serviceKey(service);
    const node = choosingNode(snapshot, nodeName);
    const view = makeServiceView(service, slicesOf(snapshot, path), node);
    const bytes = toBinary(ServiceSchema, encodeService(service, isExtended ? view : undefined));
    yield { section: 1, path, frame: setFrame(SetName.ServicesSet, path, bytes) };
    for (const endpoint of view.endpoints) {
      if (!isExtended && !endpoint.scopes.internal) continue;
      const encode = isExtended ? encodeExtendedEndpoint : encodeKpngEndpoint;
      const section = endpoint.podName === "" ? 3 : 2;
      const endpointPath = `${path}/${endpoint.key}`;
      const encoded = toBinary(EndpointSchema, encode(endpoint, service));
      yield { section, path: endpointPath, frame: setFrame(SetName.EndpointsSet, endpointPath, encoded) };
    }
  }
}
