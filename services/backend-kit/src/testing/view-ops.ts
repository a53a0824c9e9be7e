import { toBinary } from "@bufbuild/protobuf";
import { type OpItem, ServiceSchema, Set as WireSet } from "@kpng/model/gen/localv1/api_pb.ts";
import type { ServiceView } from "@kpng/model/node-view.ts";
import { serviceKey } from "@kpng/model/service.ts";
import { endpointBytes } from "@kpng/model/wire/endpoint-message.ts";
import { encodeService } from "@kpng/model/wire/service-message.ts";
import { put } from "./ops.ts";

/**
 * Returns the operations of a stream that put a Service and its endpoints, for `runProxy` and the fault tests, which
 * play a watcher.
 */
export function putView({ service, portHasEndpoints, endpoints }: ServiceView): readonly OpItem[] {
  const path = serviceKey(service);
  const extension = portHasEndpoints === undefined ? undefined : { portHasEndpoints };
  return [
    put(WireSet.ServicesSet, path, toBinary(ServiceSchema, encodeService(service, extension))),
    // A copy: the encoder uses its buffer again.
    ...endpoints.map((endpoint) =>
      put(WireSet.EndpointsSet, `${path}/${endpoint.key}`, Uint8Array.from(endpointBytes(endpoint, service, true))),
    ),
  ];
}
