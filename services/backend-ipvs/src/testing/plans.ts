import type { Frontend, Route, ServicePlan, ServicePortPlan } from "@kpng/service-plan/service-plan.ts";

const cluster: Route = { kind: "balance", set: "cluster", isMasqueraded: true };

/** Routes of frontends, by traffic policy and endpoints. The tests of `renderService` use this file. */
export const routesOf = {
  /** A cluster IP: pods keep their address. */
  internal: { pod: { ...cluster, isMasqueraded: false }, node: cluster, outside: cluster },
  external: { pod: cluster, node: cluster, outside: cluster },
  refused: { pod: { kind: "refuse" }, node: { kind: "refuse" }, outside: { kind: "refuse" } },
} as const satisfies Record<string, Frontend["routes"]>;

/** Returns a frontend with only the fields that a test is about. Default: a cluster IP. */
export function frontend(parts: Partial<Frontend> = {}): Frontend {
  return {
    kind: "clusterIP",
    address: "10.96.0.1",
    protocol: "TCP",
    port: 80,
    sources: undefined,
    routes: routesOf.internal,
    ...parts,
  };
}

/** Returns the plan of the Service `ns/web` with one port and endpoints 10.1.1.7 (on the node) and 10.1.2.8. */
export function webPlan(frontends: readonly Frontend[], parts: Partial<ServicePortPlan> = {}): ServicePlan {
  const [on, off] = [
    { address: "10.1.1.7", port: 8080 },
    { address: "10.1.2.8", port: 8080 },
  ];
  const port = {
    name: "ns/web:http",
    protocol: "TCP",
    port: 80,
    affinitySeconds: undefined,
    sets: { cluster: [on, off], local: [on] },
    frontends,
    ...parts,
  } as const;
  return { key: "ns/web", family: "v4", ports: [port], hairpin: [], healthCheck: undefined };
}
