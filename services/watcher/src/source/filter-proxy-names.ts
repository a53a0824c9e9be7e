import { serviceKey } from "@kpng/model/service.ts";
import type { ClusterSink } from "./source.ts";

/**
 * Returns a sink that passes on only Services with one of the proxy names (`--service-proxy-name`). Without names, it
 * is `sink` itself.
 *
 * A Service that gets another proxy name is deleted. EndpointSlices pass: no view contains those without a Service.
 *
 * `makeSource` and `makeInspectSource`, the commands of `kpng SOURCE`, wrap their store in it. The source `kube` also
 * selects in the API server, but not every selection can be expressed there.
 */
export function filterProxyNames(sink: ClusterSink, proxyNames: readonly string[]): ClusterSink {
  if (proxyNames.length === 0) return sink;
  const names = new Set(proxyNames);
  return {
    currency: sink.currency,
    apply: (changes, origin) => {
      const passed = changes.map((change) =>
        change.kind === "put-service" && !names.has(change.service.proxyName)
          ? ({ kind: "delete-service", key: serviceKey(change.service) } as const)
          : change,
      );
      sink.apply(passed, origin);
    },
    replace: (objects, origin) => {
      const services = objects.services?.filter(({ proxyName }) => names.has(proxyName));
      sink.replace({ ...objects, services }, origin);
    },
  };
}
