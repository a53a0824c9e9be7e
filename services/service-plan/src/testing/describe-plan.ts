import { addressAndPort } from "@kpng/model/address.ts";
import type { EndpointAddress, Frontend, Route, ServicePlan, WholeEndpoint, WholeFrontend } from "../service-plan.ts";

/**
 * Returns a plan as text, with which `plan-service.test.ts` compares: a line for each frontend, used endpoint set, etc.
 *
 * ```text
 * clusterIP 10.96.0.10:80/TCP: pod cluster, others cluster masqueraded
 * cluster: 10.0.1.1:8080 10.0.1.2:8080
 * hairpin: 10.0.1.1
 * ```
 */
export function describePlan({ ports, whole, hairpin, healthCheck }: ServicePlan): readonly string[] {
  return [
    ...[...ports, ...(whole === undefined ? [] : [whole])].flatMap(({ frontends, sets, affinitySeconds }) => [
      ...frontends.map(describeFrontend),
      ...(["cluster", "local"] as const).flatMap((name) => {
        const isUsed = frontends.some(({ routes }) =>
          Object.values(routes).some((route) => route.kind === "balance" && route.set === name),
        );
        return isUsed ? [`${name}: ${sets[name].map(describeEndpoint).join(" ")}`] : [];
      }),
      ...(affinitySeconds === undefined ? [] : [`affinity: ${affinitySeconds} s`]),
    ]),
    ...(hairpin.length === 0 ? [] : [`hairpin: ${hairpin.join(" ")}`]),
    ...(healthCheck === undefined
      ? []
      : [`health check: port ${healthCheck.port}, ${healthCheck.localEndpoints} here`]),
  ];
}

function describeEndpoint({ address, port }: EndpointAddress | WholeEndpoint): string {
  return port === undefined ? address : addressAndPort(address, port);
}

function describeFrontend({ kind, address, port, protocol, sources, routes }: Frontend | WholeFrontend): string {
  const place =
    address === undefined
      ? `${port}/${protocol}`
      : port === undefined
        ? `${address} as a whole`
        : `${addressAndPort(address, port)}/${protocol}`;
  const only = sources === undefined ? "" : ` for ${[...sources.ranges, ...sources.ownAddresses].join(" ")}`;
  const [pod, node, outside] = [routes.pod, routes.node, routes.outside].map(describeRoute);
  const ways =
    pod === outside && node === outside
      ? outside
      : node === outside
        ? `pod ${pod}, others ${outside}`
        : `pod ${pod}, node ${node}, outside ${outside}`;
  return `${kind} ${place}${only}: ${ways}`;
}

function describeRoute(route: Route): string {
  return route.kind === "balance" ? `${route.set}${route.isMasqueraded ? " masqueraded" : ""}` : route.kind;
}
