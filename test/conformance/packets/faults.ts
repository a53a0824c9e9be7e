import type {
  EndpointAddress,
  Frontend,
  Route,
  ServicePlan,
  ServicePortPlan,
} from "@kpng/service-plan/service-plan.ts";

/** What a faulty proxy does wrong. */
export interface Fault {
  /** Cases that must find it, as for `--only`. */
  readonly cases: string;
  /** Changes the plan of a Service. `before` is the plan that was installed last, if there is one. */
  readonly plan?: (plan: ServicePlan, before: ServicePlan | undefined) => ServicePlan;
  /** Plans of deleted Services stay. Default false. */
  readonly forgetsDeletes?: boolean;
  /** Conntrack is left alone. Default false. */
  readonly leavesConntrack?: boolean;
  /** The cleanup does nothing. Default false. */
  readonly leavesRules?: boolean;
  /** A start begins with half a second without rules. Default false. */
  readonly startsEmpty?: boolean;
}

const ports = (change: (port: ServicePortPlan) => ServicePortPlan) => (plan: ServicePlan) => {
  return { ...plan, ports: plan.ports.map(change) };
};
const frontends = (change: (frontend: Frontend) => readonly Frontend[]) =>
  ports((port) => ({ ...port, frontends: port.frontends.flatMap(change) }));
const routes = (change: (route: Route) => Route) =>
  frontends((frontend) => {
    const { pod, node, outside } = frontend.routes;
    return [{ ...frontend, routes: { pod: change(pod), node: change(node), outside: change(outside) } }];
  });
const sets = (change: (endpoints: readonly EndpointAddress[]) => readonly EndpointAddress[]) =>
  ports((port) => ({ ...port, sets: { cluster: change(port.sets.cluster), local: change(port.sets.local) } }));
const without = (kind: Frontend["kind"]) => frontends((frontend) => (frontend.kind === kind ? [] : [frontend]));

/** Faults of a proxy, by what it does. */
export const faults: Readonly<Record<string, Fault>> = {
  "does not masquerade": {
    cases: "scenario/a-node-port",
    plan: routes((route) => (route.kind === "balance" ? { ...route, isMasqueraded: false } : route)),
  },
  "masquerades everything": {
    cases: "scenario/a-cluster-ip-with",
    plan: routes((route) => (route.kind === "balance" ? { ...route, isMasqueraded: true } : route)),
  },
  "drops instead of refusing": {
    cases: "scenario/no-endpoint",
    plan: routes((route) => (route.kind === "refuse" ? { kind: "drop" } : route)),
  },
  "refuses instead of dropping": {
    cases: "scenario/internal-policy-local-without",
    plan: routes((route) => (route.kind === "drop" ? { kind: "refuse" } : route)),
  },
  "ignores traffic policies": {
    cases: "scenario/external-policy-local-with-an",
    plan: routes((route) => (route.kind === "balance" ? { ...route, set: "cluster" } : route)),
  },
  "forgets hairpins": { cases: "scenario/a-pod-that-reaches-itself", plan: (plan) => ({ ...plan, hairpin: [] }) },
  "ignores source ranges": {
    cases: "scenario/external-policy-local-with-source-ranges",
    plan: frontends((frontend) => [{ ...frontend, sources: undefined }]),
  },
  "ignores affinity": {
    cases: "scenario/session-affinity",
    plan: ports((port) => ({ ...port, affinitySeconds: undefined })),
  },
  "serves no node ports": { cases: "scenario/a-node-port", plan: without("nodePort") },
  "serves no load-balancer IPs": { cases: "scenario/external-policy-local-with-an", plan: without("loadBalancerIP") },
  "serves no external IPs": { cases: "scenario/external-policy-local-with-an", plan: without("externalIP") },
  "sends to the Service's port": {
    cases: "scenario/a-cluster-ip-with",
    plan: ports((port) => {
      const moved = (endpoints: readonly EndpointAddress[]) => endpoints.map((each) => ({ ...each, port: port.port }));
      return { ...port, sets: { cluster: moved(port.sets.cluster), local: moved(port.sets.local) } };
    }),
  },
  "serves TCP alone": {
    cases: "scenario/a-cluster-ip-with",
    plan: (plan) => ({ ...plan, ports: plan.ports.filter(({ protocol }) => protocol === "TCP") }),
  },
  "serves IPv4 alone": {
    cases: "scenario/a-cluster-ip-with",
    plan: (plan) => (plan.family === "v4" ? plan : { ...plan, ports: [] }),
  },
  "uses one endpoint alone": { cases: "scenario/a-cluster-ip-with", plan: sets((endpoints) => endpoints.slice(0, 1)) },
  "forgets deleted Services": {
    cases: "scenario/endpoints-in-the-host-network,scenario/a-service-of-another-proxy",
    forgetsDeletes: true,
  },
  "forgets removed endpoints": {
    cases: "update/an-endpoint-is-removed",
    plan: (plan, before) =>
      ports((port) => {
        const old = before?.ports.find(({ name, protocol }) => name === port.name && protocol === port.protocol);
        const all = [...port.sets.cluster, ...(old?.sets.cluster ?? [])];
        const distinct = new Map(all.map((each) => [`${each.address} ${each.port}`, each]));
        return { ...port, sets: { ...port.sets, cluster: [...distinct.values()] } };
      })(plan),
  },
  "leaves stale UDP flows": { cases: "update/the-only-endpoint-is-replaced", leavesConntrack: true },
  "leaves its rules at the cleanup": { cases: "cleanup", leavesRules: true },
  "has no rules for a moment at a start": { cases: "continuity/restart", startsEmpty: true },
};
