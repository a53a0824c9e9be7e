import { getOrMake } from "@kpng/model/collections.ts";
import type { ServiceView } from "@kpng/model/node-view.ts";
import { answeringEndpoints } from "@kpng/service-plan/plan-service.ts";
import type {
  AllowedSources,
  Frontend,
  NodePlan,
  Route,
  ServicePlan,
  ServicePortPlan,
} from "@kpng/service-plan/service-plan.ts";
import type { FirewallMarks } from "./firewall-marks.ts";
import {
  addressServer,
  finishing,
  markElement,
  markServer,
  type ObjectKind,
  type ObjectMap,
  portElement,
  realKey,
  type ServerId,
} from "./kernel-objects.ts";
import type { NodePlaces } from "./node-places.ts";

/** The inputs on which a Service's objects in one family depend, other than the Service's plan. */
export interface RenderContext {
  readonly node: NodePlan;
  /** Addresses that serve node ports, with `all` in the plan replaced by the node's addresses. */
  readonly nodePortAddresses: readonly string[];
  /** Says at which of these addresses another frontend has the port. */
  readonly nodePlaces: Pick<NodePlaces, "isTaken">;
  /**
   * Addresses on the node's other interfaces. They are not added to our interface, because packets to them reach IPVS
   * anyway.
   */
  readonly localAddresses: ReadonlySet<string>;
  /** The Service in the view, which includes endpoints that only finish their UDP flows. */
  readonly view: ServiceView | undefined;
  /** *Shape:* `rr`. */
  readonly scheduler: string;
  readonly marks: FirewallMarks;
}

/**
 * Returns the objects that one Service needs in the kernel: virtual servers with real servers, addresses, and elements
 * of the ipsets that the constant rules of `renderFrame` look up. Pure, except that it allocates marks; O(frontends ×
 * endpoints).
 */
export function renderService(plan: ServicePlan, context: RenderContext): ObjectMap {
  const objects = new ObjectWriter();
  for (const port of plan.ports) {
    for (const frontend of port.frontends) renderFrontend(objects, port, frontend, context);
  }
  for (const address of plan.hairpin) objects.put("HAIRPIN", `${address},${address}`);
  if (plan.healthCheck !== undefined) objects.put("HEALTH", String(plan.healthCheck.port));
  return objects.map;
}

function renderFrontend(
  objects: ObjectWriter,
  port: ServicePortPlan,
  frontend: Frontend,
  context: RenderContext,
): void {
  const { address } = frontend;
  if (address === undefined) {
    // An address for node ports is never added to our interface, even if the node has just lost it, because another
    // node may have it by now.
    const { protocol, port: number } = frontend;
    for (const each of context.nodePortAddresses) {
      if (context.nodePlaces.isTaken(portElement(each, protocol, number))) continue;
      renderPlace(objects, port, frontend, each, context);
    }
    return;
  }
  if (!context.localAddresses.has(address)) {
    objects.put("address", address);
    objects.put("ADDRESSES", address);
  }
  renderPlace(objects, port, frontend, address, context);
}

function renderPlace(
  objects: ObjectWriter,
  port: ServicePortPlan,
  { routes, port: number, protocol, sources }: Frontend,
  address: string,
  context: RenderContext,
): void {
  const element = portElement(address, protocol, number);
  const { pod, node, outside } = routes;
  if ([pod, node, outside].some(({ kind }) => kind === "balance")) putSources(objects, element, sources);
  if (outside.kind === "drop" && pod.kind === "balance" && node.kind === "balance" && pod.set === node.set) {
    // With policy Local and no endpoint on the node, all senders that are served use the same set. So no packet needs a
    // firewall mark, which packets that already have another mark could not get.
    putServer(objects, addressServer(address, protocol, number), port, pod, context);
    objects.put("SERVERS", element);
    objects.put("DROP-OUTSIDE", element);
    if (pod.isMasqueraded || node.isMasqueraded) objects.put(pod.isMasqueraded ? "MASQ" : "MASQ-OTHERS", element);
    return;
  }
  switch (outside.kind) {
    case "balance":
      putServer(objects, addressServer(address, protocol, number), port, outside, context);
      objects.put("SERVERS", element);
      break;
    case "drop":
      objects.put("DROPPED", element);
      break;
    case "refuse":
      objects.put("REFUSED", element);
  }
  if (leadsElsewhere(pod, outside) || leadsElsewhere(node, outside)) {
    putMark(objects, "POD-MARKS", element, pod, port, context);
    putMark(objects, "NODE-MARKS", element, node, port, context);
  } else if (isMasqueraded(outside)) objects.put(isMasqueraded(pod) ? "MASQ" : "MASQ-OTHERS", element);
}

/** True if packets with this route go to different endpoints from packets of outside clients. */
function leadsElsewhere(route: Route, outside: Route): boolean {
  if (route.kind !== "balance") return false;
  return outside.kind !== "balance" || outside.set !== route.set;
}

function isMasqueraded(route: Route): boolean {
  return route.kind === "balance" && route.isMasqueraded;
}

/** Puts the virtual server for a firewall mark, and the element by which packets get the mark. */
function putMark(
  objects: ObjectWriter,
  role: "POD-MARKS" | "NODE-MARKS",
  element: string,
  route: Route,
  port: ServicePortPlan,
  context: RenderContext,
): void {
  if (route.kind !== "balance") return;
  const { family } = context.node;
  const mark = context.marks.markOf(family, port, route.isMasqueraded);
  putServer(objects, markServer(mark, family), port, route, context);
  objects.put("MARKS", markElement(mark));
  objects.put(role, element, `skbmark 0x${mark.toString(16)}`);
}

function putServer(
  objects: ObjectWriter,
  server: ServerId,
  plan: ServicePortPlan,
  route: Extract<Route, { kind: "balance" }>,
  { scheduler, view, node }: RenderContext,
): void {
  const { affinitySeconds, sets } = plan;
  const persistence = affinitySeconds === undefined ? "" : ` -p ${affinitySeconds}`;
  objects.put("server", server, `-s ${scheduler}${persistence}${schedulerFlags(scheduler)}`);
  for (const { address, port } of answeringEndpoints(view, plan, node.family)) {
    objects.put("real", realKey(server, address, port), finishing);
  }
  // Comes last, because an endpoint that is in both lists gets new flows.
  for (const { address, port } of sets[route.set]) {
    objects.put("real", realKey(server, address, port), "-w 1");
  }
}

/**
 * Returns the flags of a scheduler. mh hashes the source port, too, as in kube-proxy; otherwise all connections from a
 * client would go to the same endpoint. With sh, endpoints of weight 0 keep their share of the hash table; without the
 * fallback flag, clients that hash to a draining endpoint would be refused.
 */
function schedulerFlags(scheduler: string): string {
  switch (scheduler) {
    case "mh":
      return " -b mh-port";
    case "sh":
      return " -b sh-fallback";
    default:
      return "";
  }
}

function putSources(objects: ObjectWriter, element: string, sources: AllowedSources | undefined): void {
  if (sources === undefined) return;
  objects.put("RANGED", element);
  for (const range of [...sources.ranges, ...sources.ownAddresses]) {
    objects.put("SOURCES", `${element},${withoutHostLength(range)}`);
  }
}

/** Returns a range as ipset prints it, which omits the length if the range is a single address. */
function withoutHostLength(range: string): string {
  const length = range.includes(":") ? "/128" : "/32";
  return range.endsWith(length) ? range.slice(0, -length.length) : range;
}

class ObjectWriter {
  readonly map = new Map<ObjectKind, Map<string, string>>();

  put(kind: ObjectKind, key: string, value = ""): void {
    getOrMake(this.map, kind, () => new Map()).set(key, value);
  }
}
