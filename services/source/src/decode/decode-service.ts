import type { AddressSet } from "@kpng/model/address.ts";
import type { Service, ServicePort } from "@kpng/model/service.ts";
import { z } from "zod";
import {
  addressField,
  addressOrField,
  affinitySecondsField,
  cidrField,
  type Decoded,
  type DecodeOptions,
  type FieldProblem,
  isName,
  keep,
  metadataShape,
  nameOrEmptyField,
  ok,
  parseParts,
  portField,
  portOrZeroField,
  show,
  timeField,
  toSet,
  wordField,
} from "./decoded.ts";

/**
 * Decodes a core/v1 Service. Absent fields get the API server's defaults, and invalid parts are skipped, as in
 * kube-proxy. If a source range is invalid, the load-balancer IPs of a family without any other range are skipped, too,
 * because they would be open to every client. The result "bad" names the first problem outside the {@link
 * serviceParts}; the result "skip" means that no proxy serves the Service. Pure.
 */
export function decodeService(object: unknown, options: DecodeOptions): Decoded<Service> {
  const parsed = parseParts(serviceShape, serviceParts, object);
  if (parsed.kind === "bad") return parsed;
  const { metadata, status } = parsed.data;
  const note = whyIgnored(metadata.labels);
  if (note !== undefined) return { kind: "skip", note };
  const spec = parsed.data.spec ?? {};
  const clusterIPs = spec.clusterIPs?.length ? spec.clusterIPs : [spec.clusterIP ?? ""];
  const service: Service = {
    namespace: metadata.namespace,
    name: metadata.name,
    type: spec.type ?? "ClusterIP",
    ...(metadata.creationTimestamp ? { createdSeconds: metadata.creationTimestamp } : {}),
    ...(metadata.uid ? { uid: metadata.uid } : {}),
    proxyName: metadata.labels?.[proxyNameLabel] ?? "",
    labels: keep(metadata.labels, options.serviceLabels),
    annotations: keep(metadata.annotations, options.serviceAnnotations),
    isHeadless: spec.clusterIP === "None" || clusterIPs.includes("None"),
    clusterIPs: toSet(clusterIPs.filter((address) => typeof address !== "string")),
    externalIPs: toSet(spec.externalIPs ?? []),
    ...loadBalancerIPs(status?.loadBalancer?.ingress ?? []),
    ipFilters: spec.loadBalancerSourceRanges?.length ? [{ sourceRanges: spec.loadBalancerSourceRanges }] : [],
    mapIP: asksForWholeAddresses(metadata.annotations) || asksForWholeAddresses(metadata.labels),
    ports: (spec.ports ?? []).map(toPort),
    internalTrafficPolicy: spec.internalTrafficPolicy ?? "Cluster",
    externalTrafficPolicy: spec.externalTrafficPolicy || "Cluster",
    clientIPAffinitySeconds:
      spec.sessionAffinity === "ClientIP"
        ? (spec.sessionAffinityConfig?.clientIP?.timeoutSeconds ?? defaultAffinitySeconds)
        : undefined,
    healthCheckNodePort: spec.healthCheckNodePort ?? 0,
  };
  return ok(withoutOpenedIPs(service, spec.loadBalancerSourceRanges ?? [], parsed.skipped), [], parsed.skipped);
}

const serviceParts: readonly string[] = [
  "metadata.creationTimestamp",
  "metadata.uid",
  "spec.type",
  "spec.clusterIP",
  "spec.clusterIPs.*",
  "spec.externalIPs.*",
  "spec.loadBalancerSourceRanges.*",
  "spec.ports.*",
  "spec.ports.*.nodePort",
  "spec.ports.*.targetPort",
  "spec.internalTrafficPolicy",
  "spec.externalTrafficPolicy",
  "spec.sessionAffinity",
  "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
  "spec.healthCheckNodePort",
  "status.loadBalancer.ingress.*",
];

/** Removes the load-balancer IPs of each family whose only range may have been the invalid range. */
function withoutOpenedIPs(service: Service, ranges: readonly string[], skipped: readonly FieldProblem[]): Service {
  const isRange = ({ path }: FieldProblem): boolean => path[1] === "loadBalancerSourceRanges";
  if (service.loadBalancerIPs === undefined || !skipped.some(isRange)) return service;
  const loadBalancerIPs: AddressSet = {
    v4: ranges.some((range) => !range.includes(":")) ? service.loadBalancerIPs.v4 : [],
    v6: ranges.some((range) => range.includes(":")) ? service.loadBalancerIPs.v6 : [],
  };
  return { ...service, loadBalancerIPs };
}

/**
 * Returns true if the annotations or the labels of a Service ask for whole addresses (`Service.mapIP`); values other than
 * "true" mean nothing.
 *
 * A headless Service without a proxy name needs the label: the EndpointSlice controller copies labels to the slices, and
 * `decodeSlice` ignores headless slices that no proxy serves.
 */
export function asksForWholeAddresses(names: Readonly<Record<string, string>> | null | undefined): boolean {
  return names?.["kpng.dev/map-ip"] === "true";
}

export const proxyNameLabel = "service.kubernetes.io/service-proxy-name";

export const headlessLabel = "service.kubernetes.io/headless";

/**
 * Returns the reason why no proxy serves the Service; undefined if a proxy may serve it. kube-proxy ignores objects
 * that have either label, whatever its value (`server.go`, LabelServiceProxyName and IsHeadlessService); other proxies
 * have a name.
 */
function whyIgnored(labels: Readonly<Record<string, string>> | null | undefined): string | undefined {
  if ((labels?.[proxyNameLabel] ?? "") !== "") return undefined;
  if (labels?.[proxyNameLabel] !== undefined) return `the Service has an empty label ${proxyNameLabel}`;
  return labels?.[headlessLabel] === undefined ? undefined : `the Service has the label ${headlessLabel}`;
}

const defaultAffinitySeconds = 10_800;

const clusterIPField = addressOrField("", "None");

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

const ingressShape = z.object({ ip: addressOrField("").nullish(), ipMode: z.string().nullish() });

const serviceShape = z.object({
  metadata: metadataShape.extend({ creationTimestamp: timeField.nullish(), uid: z.string().nullish() }),
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
    // The API server sets a target port that is absent, 0 or "" to the service port.
    targetPort: port.targetPort || port.port,
  };
}

/** Rejects digits in a string, as the API server does, because they would be looked up as a port name. */
function isTargetPort(port: number | string): boolean {
  if (typeof port === "number") return Number.isInteger(port) && port >= 0 && port <= 65_535;
  return port === "" || (isName(port) && /\D/.test(port));
}
