import type { Service, ServicePort } from "@kpng/model/service.ts";
import { z } from "zod";
import type { DecodeOptions } from "./decode-options.ts";
import { bad, type Decoded, ok, show } from "./decoded.ts";
import {
  addressField,
  affinitySecondsField,
  cidrField,
  isName,
  keep,
  nameOrEmptyField,
  portField,
  portOrZeroField,
  toSet,
  wordField,
} from "./fields.ts";
import { metadataShape } from "./metadata.ts";

/**
 * Decodes a core/v1 Service from the API server or a manifest. Absent fields get the API server's defaults.
 *
 * Pure. "bad" names the first invalid field. It never returns "skip": ExternalName and headless Services are accepted.
 */
export function decodeService(object: unknown, options: DecodeOptions): Decoded<Service> {
  const parsed = serviceShape.safeParse(object);
  if (!parsed.success) return bad(parsed.error);
  const { metadata, status } = parsed.data;
  const spec = parsed.data.spec ?? {};
  const clusterIPs = spec.clusterIPs?.length ? spec.clusterIPs : [spec.clusterIP ?? ""];
  return ok({
    namespace: metadata.namespace,
    name: metadata.name,
    type: spec.type ?? "ClusterIP",
    proxyName: metadata.labels?.[proxyNameLabel] ?? "",
    labels: keep(metadata.labels, options.serviceLabels),
    annotations: keep(metadata.annotations, options.serviceAnnotations),
    isHeadless: spec.clusterIP === "None" || clusterIPs.includes("None"),
    clusterIPs: toSet(clusterIPs.filter((address) => typeof address !== "string")),
    externalIPs: toSet(spec.externalIPs ?? []),
    ...loadBalancerIPs(status?.loadBalancer?.ingress ?? []),
    ipFilters: spec.loadBalancerSourceRanges?.length ? [{ sourceRanges: spec.loadBalancerSourceRanges }] : [],
    mapIP: false,
    ports: (spec.ports ?? []).map(toPort),
    internalTrafficPolicy: spec.internalTrafficPolicy ?? "Cluster",
    externalTrafficPolicy: spec.externalTrafficPolicy || "Cluster",
    clientIPAffinitySeconds:
      spec.sessionAffinity === "ClientIP"
        ? (spec.sessionAffinityConfig?.clientIP?.timeoutSeconds ?? defaultAffinitySeconds)
        : undefined,
    healthCheckNodePort: spec.healthCheckNodePort ?? 0,
  });
}

/** Label that assigns a Service to a proxy other than the default one. */
export const proxyNameLabel = "service.kubernetes.io/service-proxy-name";

/** Default of the API server for spec.sessionAffinityConfig.clientIP.timeoutSeconds. */
const defaultAffinitySeconds = 10_800;

const clusterIPField = z.union([z.literal(["", "None"]), addressField], {
  error: ({ input }) => (typeof input === "string" ? `${show(input)} is not an IP address` : undefined),
});

const targetPortField = z.union([z.number(), z.string()]).refine(isTargetPort, {
  error: ({ input }) => `${show(input)} is neither a port number (1 to 65535) nor a port name (at least one letter)`,
});

const portShape = z.object({
  name: nameOrEmptyField.nullish(),
  protocol: wordField("TCP", "UDP", "SCTP").nullish(),
  port: portField,
  nodePort: portOrZeroField.nullish(),
  targetPort: targetPortField.nullish(),
});

const specShape = z.object({
  type: wordField("ClusterIP", "NodePort", "LoadBalancer", "ExternalName").nullish(),
  clusterIP: clusterIPField.nullish(),
  clusterIPs: z.array(clusterIPField).nullish(),
  externalIPs: z.array(addressField).nullish(),
  loadBalancerSourceRanges: z.array(cidrField).nullish(),
  ports: z.array(portShape).nullish(),
  internalTrafficPolicy: wordField("Cluster", "Local").nullish(),
  externalTrafficPolicy: wordField("Cluster", "Local", "").nullish(),
  sessionAffinity: wordField("None", "ClientIP", "").nullish(),
  sessionAffinityConfig: z
    .object({ clientIP: z.object({ timeoutSeconds: affinitySecondsField.nullish() }).nullish() })
    .nullish(),
  healthCheckNodePort: portOrZeroField.nullish(),
});

const ingressShape = z.object({
  ip: z
    .union([z.literal(""), addressField], {
      error: ({ input }) => (typeof input === "string" ? `${show(input)} is not an IP address` : undefined),
    })
    .nullish(),
  ipMode: z.string().nullish(),
});

const serviceShape = z.object({
  metadata: metadataShape,
  spec: specShape.nullish(),
  status: z.object({ loadBalancer: z.object({ ingress: z.array(ingressShape).nullish() }).nullish() }).nullish(),
});

function loadBalancerIPs(
  ingress: readonly z.infer<typeof ingressShape>[],
): Pick<Service, "loadBalancerIPs" | "proxyModeLoadBalancerIPs"> {
  const addresses = ingress.flatMap(({ ip, ipMode }) => (ip ? [{ ...ip, isProxyMode: ipMode === "Proxy" }] : []));
  return {
    loadBalancerIPs: ingress.length === 0 ? undefined : toSet(addresses.filter((address) => !address.isProxyMode)),
    proxyModeLoadBalancerIPs: toSet(addresses.filter((address) => address.isProxyMode)),
  };
}

function toPort(port: z.infer<typeof portShape>): ServicePort {
  return {
    name: port.name ?? "",
    protocol: port.protocol ?? "TCP",
    port: port.port,
    nodePort: port.nodePort ?? 0,
    // The API server defaults an absent target port, 0 and "" to the port of the Service.
    targetPort: port.targetPort || port.port,
  };
}

/** Rejects text of digits, as the API server does: it would be looked up as a port name and never found. */
function isTargetPort(port: number | string): boolean {
  if (typeof port === "number") return Number.isInteger(port) && port >= 0 && port <= 65_535;
  return port === "" || (isName(port) && /\D/.test(port));
}
