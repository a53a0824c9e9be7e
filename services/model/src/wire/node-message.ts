import { create } from "@bufbuild/protobuf";
import { parseAddress, parseCidr } from "../address.ts";
import { type Node as NodeMessage, NodeSchema } from "../gen/localv1/api_pb.ts";
import type { ViewNode } from "../node-view.ts";
import { WireError } from "./wire-error.ts";

/**
 * Returns the message of a node. The watcher calls it for the node in a view (`nodeItems`), and within the larger
 * NodeInfo for relays (`encodeNodeInfo`); a backend for its saved view. Each kind of item has a file of its own.
 */
export function encodeNode(node: ViewNode): NodeMessage {
  return create(NodeSchema, {
    Name: node.name,
    Zone: node.zone,
    Addresses: [...node.addresses],
    PodCIDRs: [...node.podCIDRs],
    Eligible: node.isEligible,
    ServiceCIDRs: [...node.serviceCIDRs],
  });
}

/** Returns the node in a message of a node view (`decodeLocalOp`) or of a NodeInfo. Errors: WireError. */
export function decodeNode(message: NodeMessage): ViewNode {
  return {
    name: message.Name,
    zone: message.Zone,
    addresses: message.Addresses.map((text) => parseAddress(text)?.address ?? fail(text, "an IP address")),
    podCIDRs: message.PodCIDRs.map((text) => parseCidr(text)?.cidr ?? fail(text, "a CIDR")),
    isEligible: message.Eligible,
    serviceCIDRs: message.ServiceCIDRs.map((text) => parseCidr(text)?.cidr ?? fail(text, "a CIDR")),
  };
}

function fail(text: string, kind: string): never {
  throw new WireError(`"${text}" is not ${kind}`);
}
