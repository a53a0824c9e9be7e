import { create, type MessageInitShape, toJsonString } from "@bufbuild/protobuf";
import type { Family } from "@kpng/model/address.ts";
import {
  Action,
  EndpointSet,
  FrontendKind,
  Family as PlanFamily,
  Protocol as PlanProtocol,
  type WatchResponse,
  WatchResponseSchema,
} from "@kpng/model/gen/kpng/plan/v1/plan_pb.ts";
import type { ServiceView } from "@kpng/model/node-view.ts";
import { type Protocol, type ServiceKey, serviceKey, splitServiceKey } from "@kpng/model/service.ts";
import { answeringAddresses, answeringEndpoints } from "@kpng/service-plan/plan-service.ts";
import type {
  Frontend,
  NodePlan,
  Route,
  ServicePlan,
  WholeAddressPlan,
  WholeFrontend,
} from "@kpng/service-plan/service-plan.ts";

// Plans as messages of proto/kpng/plan/v1, which explains their fields, for programs outside this repository. Pure.

const families: Readonly<Record<Family, PlanFamily>> = { v4: PlanFamily.IPV4, v6: PlanFamily.IPV6 };

const protocols: Readonly<Record<Protocol, PlanProtocol>> = {
  TCP: PlanProtocol.TCP,
  UDP: PlanProtocol.UDP,
  SCTP: PlanProtocol.SCTP,
};

const frontendKinds: Readonly<Record<Frontend["kind"], FrontendKind>> = {
  clusterIP: FrontendKind.CLUSTER_IP,
  externalIP: FrontendKind.EXTERNAL_IP,
  loadBalancerIP: FrontendKind.LOAD_BALANCER_IP,
  nodePort: FrontendKind.NODE_PORT,
};

const sets = { cluster: EndpointSet.CLUSTER, local: EndpointSet.LOCAL } as const;

export function nodeOperation(plan: NodePlan): WatchResponse {
  return operation({ case: "node", value: nodeFields(plan) });
}

/** Returns the operation that replaces the plan of a Service. `view` is the Service that the plan was made from. */
export function serviceOperation(plan: ServicePlan, view: ServiceView | undefined): WatchResponse {
  return operation({ case: "service", value: serviceFields(plan, view) });
}

export function deleteOperation(key: ServiceKey, family: Family): WatchResponse {
  return operation({ case: "delete", value: { ...splitServiceKey(key), family: families[family] } });
}

export function resetOperation(): WatchResponse {
  return operation({ case: "reset", value: {} });
}

export function syncOperation(revision: bigint): WatchResponse {
  return operation({ case: "sync", value: { revision } });
}

/** Identifies what an operation replaces: a Service in a family, or the settings of a family. */
export function subjectOf({ operation }: WatchResponse): string {
  switch (operation.case) {
    case "service":
    case "delete":
      return `${operation.value.family} ${serviceKey(operation.value)}`;
    case "node":
      return `${operation.value.family}`;
    default:
      return "";
  }
}

export function familyOf({ family }: { readonly family: PlanFamily }): Family {
  return family === PlanFamily.IPV6 ? "v6" : "v4";
}

/** Returns an operation as one line of JSON with line end, in protobuf's JSON form and with all fields. */
export function operationLine(message: WatchResponse): string {
  return `${toJsonString(WatchResponseSchema, message, { alwaysEmitImplicit: true })}\n`;
}

type Operation = NonNullable<MessageInitShape<typeof WatchResponseSchema>["operation"]>;

function operation(value: Operation): WatchResponse {
  return create(WatchResponseSchema, { operation: value });
}

function nodeFields(plan: NodePlan) {
  const { family, nodePortAddresses, nodeAddress = "", serviceCIDRs } = plan;
  const isAll = nodePortAddresses === "all";
  return {
    family: families[family],
    podTraffic: podTraffic(plan),
    isAllNodePortAddresses: isAll,
    nodePortAddresses: isAll ? [] : [...nodePortAddresses],
    nodeAddress,
    serviceCidrs: [...serviceCIDRs],
  };
}

function podTraffic({ podTraffic: traffic }: NodePlan) {
  switch (traffic?.kind) {
    case "source":
      return { case: "podCidr", value: traffic.cidr } as const;
    case "interface":
      return { case: "podInterface", value: traffic.name } as const;
    case "interfacePrefix":
      return { case: "podInterfacePrefix", value: traffic.prefix } as const;
    default:
      return { case: undefined };
  }
}

function serviceFields(plan: ServicePlan, view: ServiceView | undefined) {
  const { key, family, ports, whole, hairpin, healthCheck } = plan;
  return {
    ...splitServiceKey(key),
    family: families[family],
    ports: ports.map((port) => ({
      name: port.name,
      protocol: protocols[port.protocol],
      port: port.port,
      affinitySeconds: port.affinitySeconds ?? 0,
      cluster: [...port.sets.cluster],
      local: [...port.sets.local],
      answering: [...answeringEndpoints(view, port, family)],
      frontends: port.frontends.map((frontend) => frontendFields(frontend, family)),
    })),
    hairpin: [...hairpin],
    ...(healthCheck === undefined ? {} : { healthCheck }),
    ...(whole === undefined ? {} : { whole: wholeFields(whole, view, family) }),
  };
}

function wholeFields(
  { affinitySeconds = 0, sets, frontends }: WholeAddressPlan,
  view: ServiceView | undefined,
  family: Family,
) {
  return {
    affinitySeconds,
    cluster: sets.cluster.map(({ address }) => address),
    local: sets.local.map(({ address }) => address),
    answering: [...answeringAddresses(view, family)],
    frontends: frontends.map((frontend) => frontendFields(frontend, family)),
  };
}

function frontendFields({ kind, address = "", port = 0, sources, routes }: Frontend | WholeFrontend, family: Family) {
  const own = (sources?.ownAddresses ?? []).map((each) => `${each}/${family === "v4" ? 32 : 128}`);
  return {
    kind: frontendKinds[kind],
    address,
    port,
    sources: [...(sources?.ranges ?? []), ...own],
    pod: routeFields(routes.pod),
    node: routeFields(routes.node),
    outside: routeFields(routes.outside),
  };
}

function routeFields(route: Route) {
  if (route.kind !== "balance") return { action: route.kind === "drop" ? Action.DROP : Action.REFUSE };
  return { action: Action.BALANCE, set: sets[route.set], isMasqueraded: route.isMasqueraded };
}
