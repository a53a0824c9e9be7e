import { create } from "@bufbuild/protobuf";
import {
  type EndpointDecision,
  EndpointDecisionSchema,
  EndpointReason,
} from "@kpng/model/gen/kpng/inspect/v1/explain_pb.ts";
import type { Decision, DecisionReason } from "../explain/explain-service.ts";
import { protocolMessage } from "./service-row.ts";

/**
 * Converts a decision of `explainService`, whether and why a node uses an endpoint, to its message in the inspection
 * API. With `isOfPacket`, the text is about one packet and mentions only the endpoint set of that packet.
 *
 * Separate, because `explainMethod` (for `kpng explain`) and the method ListNodeEndpoints (for `kpng get view`) both
 * call it. Unlike `endpointRows`, it is about one node.
 */
export function decisionRow(decision: Decision, isOfPacket = false): EndpointDecision {
  const { use, reasons } = decision;
  return create(EndpointDecisionSchema, {
    namespace: decision.namespace,
    service: decision.service,
    slice: decision.slice,
    portName: decision.portName,
    protocol: protocolMessage(decision.protocol),
    address: decision.address,
    port: decision.port,
    pod: decision.podName,
    node: decision.nodeName,
    isUsed: decision.isUsed,
    reason: reasonRows[decision.reason].message,
    isInClusterSet: use?.cluster ?? false,
    clusterReason: reasons.cluster === undefined ? EndpointReason.UNSPECIFIED : reasonRows[reasons.cluster].message,
    isInLocalSet: use?.local ?? false,
    localReason: reasons.local === undefined ? EndpointReason.UNSPECIFIED : reasonRows[reasons.local].message,
    isTold: use !== undefined,
    text: sentence(decision, isOfPacket),
  });
}

function sentence({ isUsed, reason, use, reasons }: Decision, isOfPacket: boolean): string {
  const { text } = reasonRows[reason];
  if (reason === "external-program") {
    const choice = reasons.cluster ?? reasons.local;
    return `for an external program: ${choice === undefined ? text : reasonRows[choice].text}`;
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

const reasonRows: Readonly<Record<DecisionReason, { readonly message: EndpointReason; readonly text: string }>> = {
  ready: { message: EndpointReason.READY, text: "it is ready" },
  "hinted-to-node": { message: EndpointReason.HINTED_TO_NODE, text: "its topology hints name this node" },
  "hinted-to-zone": { message: EndpointReason.HINTED_TO_ZONE, text: "its topology hints name this node's zone" },
  "last-resort": {
    message: EndpointReason.LAST_RESORT,
    text: "it is terminating but still serving, and no endpoint is ready",
  },
  "set-not-needed": { message: EndpointReason.SET_NOT_NEEDED, text: "no traffic policy of the Service needs it" },
  "not-ready": { message: EndpointReason.NOT_READY, text: "it is not ready" },
  terminated: { message: EndpointReason.TERMINATED, text: "it is terminating and no longer serving" },
  "not-on-node": {
    message: EndpointReason.NOT_ON_NODE,
    text: "the traffic policy is Local, and it runs on another node",
  },
  terminating: { message: EndpointReason.TERMINATING, text: "it is terminating, and other endpoints are ready" },
  "hinted-to-other-nodes": {
    message: EndpointReason.HINTED_TO_OTHER_NODES,
    text: "its topology hints name other nodes, and other endpoints have hints for this node",
  },
  "hinted-to-other-zones": {
    message: EndpointReason.HINTED_TO_OTHER_ZONES,
    text: "its topology hints name other zones, and other endpoints have hints for this zone",
  },
  duplicate: {
    message: EndpointReason.DUPLICATE,
    text: "another slice has the same address and port, in a better condition or earlier in order",
  },
  "no-service-port": {
    message: EndpointReason.NO_SERVICE_PORT,
    text: "the Service has no port with that name and protocol",
  },
  "no-such-port": { message: EndpointReason.NO_SUCH_PORT, text: "it has no port for this port of the Service" },
  "other-family": { message: EndpointReason.OTHER_FAMILY, text: "the Service has no cluster IP of its address family" },
  "not-proxied": { message: EndpointReason.NOT_PROXIED, text: "the Service is headless or of type ExternalName" },
  "other-service-proxy": {
    message: EndpointReason.OTHER_SERVICE_PROXY,
    text: "the Service belongs to another service proxy (label service.kubernetes.io/service-proxy-name)",
  },
  "external-program": {
    message: EndpointReason.EXTERNAL_PROGRAM,
    text: "the Service is headless and belongs to another service proxy",
  },
  "no-service": { message: EndpointReason.NO_SERVICE, text: "the Service of its slice does not exist" },
};
