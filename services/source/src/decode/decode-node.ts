import { parseAddress } from "@kpng/model/address.ts";
import type { Node } from "@kpng/model/node.ts";
import { z } from "zod";
import { bad, cidrField, type Decoded, type DecodeOptions, keep, metadataShape, ok, show } from "./decoded.ts";

/**
 * Decodes a core/v1 Node. Host names and invalid addresses, which some kubelets report, are ignored with a note; any
 * other invalid field makes the whole Node "bad". Pure.
 */
export function decodeNode(object: unknown, options: DecodeOptions): Decoded<Node> {
  const parsed = nodeShape.safeParse(object);
  if (!parsed.success) return bad(parsed.error);
  const { metadata, spec, status } = parsed.data;
  const notes: string[] = [];
  const addressesOf = (type: string): readonly string[] =>
    (status?.addresses ?? []).flatMap((entry) => {
      if (entry.type !== type) return [];
      const parsedAddress = parseAddress(entry.address);
      if (parsedAddress !== undefined) return [parsedAddress.address];
      notes.push(`${type} ${show(entry.address)} ignored: not an IP address`);
      return [];
    });
  const addresses = [...new Set([...addressesOf("InternalIP"), ...addressesOf("ExternalIP")])];
  return ok(
    {
      name: metadata.name,
      zone: metadata.labels?.[zoneLabel] ?? "",
      labels: keep(metadata.labels, options.nodeLabels),
      annotations: keep(metadata.annotations, options.nodeAnnotations),
      addresses,
      podCIDRs: spec?.podCIDRs?.length ? spec.podCIDRs : spec?.podCIDR ? [spec.podCIDR] : [],
      isEligible:
        (metadata.deletionTimestamp ?? "") === "" &&
        !(spec?.taints ?? []).some((taint) => taint.key === toBeDeletedTaint),
    },
    notes,
  );
}

const zoneLabel = "topology.kubernetes.io/zone";

/** Taint that the cluster autoscaler sets on a Node before it removes the machine. */
const toBeDeletedTaint = "ToBeDeletedByClusterAutoscaler";

const nodeShape = z.object({
  metadata: metadataShape,
  spec: z
    .object({
      podCIDR: z.union([z.literal(""), cidrField]).nullish(),
      podCIDRs: z.array(cidrField).nullish(),
      taints: z.array(z.object({ key: z.string() })).nullish(),
    })
    .nullish(),
  status: z.object({ addresses: z.array(z.object({ type: z.string(), address: z.string() })).nullish() }).nullish(),
});
