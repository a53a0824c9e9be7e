import { create, enumFromJson } from "@bufbuild/protobuf";
import { type Family, families } from "@kpng/model/address.ts";
import type { EndpointPort } from "@kpng/model/endpoint.ts";
import {
  type EndpointDecision,
  EndpointDecisionSchema,
  EndpointReasonSchema,
} from "@kpng/model/gen/kpng/inspect/v1/explain_pb.ts";
import type { EndpointUse } from "@kpng/model/node-view.ts";
import type { Service, ServiceKey, ServicePort } from "@kpng/model/service.ts";
import { isServed } from "@kpng/service-plan/plan-service.ts";
import { type Snapshot, slicesOf } from "../store/snapshot.ts";
import { type ChoiceReason, type ChoosingNode, explainChoice } from "../view/choose-endpoints.ts";
import { type MergedEndpoint, mergeSlices } from "../view/merge-slices.ts";
import { choosePortEndpoints } from "../view/service-view.ts";
import { protocolMessage } from "./cluster-rows.ts";

/**
 * Explains for each endpoint of a Service whether and why a node uses it. The explanation comes from the same choice
 * that determines the node's view ({@link choosePortEndpoints}). Pure; O(endpoints × ports).
 */
export function explainService(
  snapshot: Snapshot,
  key: ServiceKey,
  node: ChoosingNode,
  proxyName: string,
): readonly Decision[] {
  const service = snapshot.services.get(key);
  const merged = mergeSlices(slicesOf(snapshot, key));
  const decisions: Decision[] = [];
  const isOfProxy = service?.proxyName === proxyName;
  const chosen = new Map(
    isOfProxy ? [...choosePortEndpoints(service, merged, node)].map((each) => [each.group, each] as const) : [],
  );
  for (const one of merged.endpoints) {
    for (const [index, { family, port }] of familyPorts(one).entries()) {
      const portEndpoint = one.portEndpoints[index];
      const group = portEndpoint && chosen.get(portEndpoint.group);
      const use = portEndpoint && group?.useOf(portEndpoint);
      const reasons =
        portEndpoint === undefined || group === undefined
          ? {}
          : {
              cluster: explainChoice(portEndpoint, "cluster", group.choice, node),
              local: explainChoice(portEndpoint, "local", group.choice, node),
            };
      const refused =
        refusal(service, proxyName, family, port) ?? (portEndpoint === undefined ? "duplicate" : undefined);
      const isInSet = use !== undefined && (use.cluster || use.local);
      decisions.push({
        ...identity(one, family, port),
        // An external program gets the node's view, so for it, the choice among endpoints counts.
        isUsed: (refused === undefined || refused === "external-program") && isInSet,
        reason: refused ?? overall(use, reasons),
        use,
        reasons,
      });
    }
    if (isOfProxy) decisions.push(...missingPorts(service, one));
  }
  return decisions;
}

/** Why an endpoint is used or not: the result of the choice among endpoints, or the reason why no choice applies. */
export type DecisionReason = keyof typeof reasonTexts;

type EndpointFields = "namespace" | "service" | "slice" | "portName" | "protocol" | "address" | "port" | "pod" | "node";

/** Whether and why a node uses one port of an endpoint, in one address family. */
export interface Decision extends Readonly<Pick<EndpointDecision, EndpointFields | "isUsed">> {
  readonly family: Family;
  readonly reason: DecisionReason;
  /** Use in the node's view; undefined if the view does not contain the endpoint. */
  readonly use: EndpointUse | undefined;
  /** Reasons per endpoint set; undefined if no choice applies. */
  readonly reasons: { readonly cluster?: ChoiceReason | undefined; readonly local?: ChoiceReason | undefined };
}

interface FamilyPort {
  readonly family: Family;
  readonly port: EndpointPort | undefined;
}

/** Returns the families and ports of an endpoint, in the order of MergedEndpoint.portEndpoints. */
function familyPorts({ endpoint }: MergedEndpoint): readonly FamilyPort[] {
  const ports = endpoint.ports.length === 0 ? [undefined] : endpoint.ports;
  return families
    .filter((family) => endpoint.addresses[family].length > 0)
    .flatMap((family) => ports.map((port) => ({ family, port })));
}

function identity({ endpoint, slice }: MergedEndpoint, family: Family, port: EndpointPort | undefined) {
  return {
    namespace: slice.namespace,
    service: slice.serviceName,
    slice: slice.name,
    portName: port?.name ?? "",
    protocol: protocolMessage(port?.protocol),
    family,
    address: endpoint.addresses[family][0] ?? "",
    port: port?.port ?? 0,
    pod: endpoint.podName,
    node: endpoint.nodeName,
  };
}

/** Returns why the family and port cannot be used at all; undefined if the choice among endpoints decides. */
function refusal(
  service: Service | undefined,
  proxyName: string,
  family: Family,
  port: EndpointPort | undefined,
): DecisionReason | undefined {
  if (service === undefined) return "no-service";
  // Service proxies ignore a headless Service with a proxy name, but an external program may serve it.
  if (service.isHeadless && service.proxyName !== "") return "external-program";
  if (service.proxyName !== proxyName) return "other-service-proxy";
  if (service.isHeadless || service.type === "ExternalName") return "not-proxied";
  if (!isServed(service, family)) return "other-family";
  return service.ports.some((each) => answersFor(port, each)) ? undefined : "no-service-port";
}

/** True if traffic to a service port goes to this port of an endpoint. */
function answersFor(port: Pick<EndpointPort, "name" | "protocol"> | undefined, servicePort: ServicePort): boolean {
  if (port === undefined) return servicePort.name === "";
  return port.name === servicePort.name && (port.protocol === undefined || port.protocol === servicePort.protocol);
}

/** Returns a decision for each service port for which the endpoint has no port. */
function missingPorts(service: Service, one: MergedEndpoint): readonly Decision[] {
  const family = families.find((each) => one.endpoint.addresses[each].length > 0 && isServed(service, each));
  if (family === undefined) return [];
  const all = familyPorts(one);
  return service.ports
    .filter((servicePort) => !all.some(({ port }) => answersFor(port, servicePort)))
    .map(({ name, protocol }) => ({
      ...identity(one, family, undefined),
      portName: name,
      protocol: protocolMessage(protocol),
      isUsed: false,
      reason: "no-such-port",
      use: undefined,
      reasons: {},
    }));
}

/** Returns the reason for a set that contains the endpoint or, if there is none, for a set that the node needs. */
function overall(use: EndpointUse | undefined, { cluster, local }: Decision["reasons"]): DecisionReason {
  if (use?.cluster === true || use?.local !== true) {
    const closest = use?.cluster === true || cluster !== "set-not-needed" ? cluster : local;
    return closest ?? "not-ready";
  }
  return local ?? "ready";
}

/**
 * Converts a decision to its message. If `isOfPacket`, the text mentions only the endpoint set that the packet may use.
 */
export function decisionRow(decision: Decision, isOfPacket = false): EndpointDecision {
  const { family: _family, reason, use, reasons: _reasons, ...endpoint } = decision;
  return create(EndpointDecisionSchema, {
    ...endpoint,
    reason: enumFromJson(EndpointReasonSchema, `ENDPOINT_REASON_${reason.toUpperCase().replaceAll("-", "_")}`),
    isInClusterSet: use?.cluster ?? false,
    isInLocalSet: use?.local ?? false,
    isTold: use !== undefined,
    text: sentence(decision, isOfPacket),
  });
}

function sentence({ isUsed, reason, use, reasons }: Decision, isOfPacket: boolean): string {
  const text = reasonTexts[reason];
  if (reason === "external-program") {
    const choice = reasons.cluster ?? reasons.local;
    return `for an external program: ${choice === undefined ? text : reasonTexts[choice]}`;
  }
  if (!isUsed) {
    const flows = use !== undefined && !use.cluster && !use.local ? "; its existing UDP flows are kept" : "";
    return `not used: ${text}${flows}`;
  }
  if (isOfPacket) return `used: ${text}`;
  if (use?.cluster === true && use.local) return `used, also with policy Local: ${text}`;
  if (use?.cluster === true) {
    const isNeeded = reasons.local !== undefined && reasons.local !== "set-not-needed";
    return `used${isNeeded ? ", but not with policy Local" : ""}: ${text}`;
  }
  const isNeeded = reasons.cluster !== undefined && reasons.cluster !== "set-not-needed";
  return `used with policy Local${isNeeded ? " only" : ""}: ${text}`;
}

/** Why an endpoint is used or not, as a clause. The wording follows the enum in the API. */
export const reasonTexts = {
  ready: "it is ready",
  "hinted-to-node": "its topology hints name this node",
  "hinted-to-zone": "its topology hints name this node's zone",
  "last-resort": "it is terminating but still serving, and no endpoint is ready",
  "set-not-needed": "no traffic policy of the Service needs it",
  "not-ready": "it is not ready",
  terminated: "it is terminating and no longer serving",
  "not-on-node": "the traffic policy is Local, and it runs on another node",
  terminating: "it is terminating, and other endpoints are ready",
  "hinted-to-other-nodes": "its topology hints name other nodes, and other endpoints have hints for this node",
  "hinted-to-other-zones": "its topology hints name other zones, and other endpoints have hints for this zone",
  duplicate: "another slice has the same address and port, in a better condition or earlier in order",
  "no-service-port": "the Service has no port with that name and protocol",
  "no-such-port": "it has no port for this port of the Service",
  "other-family": "the Service has no cluster IP of its address family",
  "not-proxied": "the Service is headless or of type ExternalName",
  "other-service-proxy":
    "the Service belongs to another service proxy (label service.kubernetes.io/service-proxy-name)",
  "external-program": "the Service is headless and belongs to another service proxy",
  "no-service": "the Service of its slice does not exist",
};
