import { addressAndPort, type Family } from "@kpng/model/address.ts";
import type { ViewEndpoint } from "@kpng/model/node-view.ts";
import type { ServicePort } from "@kpng/model/service.ts";
import { compareText } from "@kpng/model/text-order.ts";
import { isAddress, isPortNumber } from "./served.ts";
import type { EndpointAddress, ServicePortPlan } from "./service-plan.ts";

/**
 * Returns the endpoints of a Service port for either traffic policy. `planService` calls it for each port. Pure;
 * O(endpoints). Separate from `planService`, which decides how packets reach these endpoints.
 */
export function makeEndpointSets(
  endpoints: readonly ViewEndpoint[],
  servicePort: ServicePort,
  family: Family,
): ServicePortPlan["sets"] {
  const cluster = new Map<string, EndpointAddress>();
  const local = new Map<string, EndpointAddress>();
  for (const { addresses, ports, use } of endpoints) {
    const address = addresses[family][0];
    if (address === undefined || !(use.cluster || use.local) || !isAddress(address, family)) continue;
    for (const { name, port, protocol } of ports) {
      if (name !== servicePort.name || (protocol !== undefined && protocol !== servicePort.protocol)) continue;
      if (!isPortNumber(port)) continue;
      const text = addressAndPort(address, port);
      const endpoint = { address, port };
      if (use.cluster) cluster.set(text, endpoint);
      if (use.local) local.set(text, endpoint);
    }
  }
  return { cluster: inOrder(cluster), local: inOrder(local) };
}

function inOrder(endpoints: ReadonlyMap<string, EndpointAddress>): readonly EndpointAddress[] {
  return [...endpoints.keys()].sort(compareText).flatMap((text) => endpoints.get(text) ?? []);
}
