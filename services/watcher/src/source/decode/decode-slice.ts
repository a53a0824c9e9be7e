import { noAddresses } from "@kpng/model/address.ts";
import type { Endpoint, EndpointPort, EndpointSlice } from "@kpng/model/endpoint.ts";
import { shareConditions, shareText } from "@kpng/model/shared-values.ts";
import { compareText } from "@kpng/model/text-order.ts";
import { z } from "zod";
import type { DecodeOptions } from "./decode-options.ts";
import { bad, type Decoded, ok, show } from "./decoded.ts";
import { addressField, nameOrEmptyField, portOrZeroField, toSet, wordField } from "./fields.ts";
import { metadataShape } from "./metadata.ts";

/**
 * Decodes a discovery.k8s.io/v1 EndpointSlice from the API server or a manifest. Absent conditions get kube-proxy's
 * defaults, absent port fields the API server's.
 *
 * Pure. "skip" for slices of host names and slices without a Service; "bad" names the first invalid field.
 *
 * Source: kube-proxy, `endpointslicecache.go`.
 */
export function decodeSlice(object: unknown, _options?: DecodeOptions): Decoded<EndpointSlice> {
  const parsed = addressSliceShape.safeParse(object);
  if (!parsed.success) {
    const isFqdn = sliceShape.safeParse(object).data?.addressType === "FQDN";
    return isFqdn ? skipFqdn : bad(parsed.error);
  }
  const { metadata, addressType, endpoints, ports } = parsed.data;
  if (addressType === "FQDN") return skipFqdn;
  const serviceName = metadata.labels?.[serviceNameLabel] ?? "";
  if (serviceName === "") return { kind: "skip", note: `the slice has no label ${serviceNameLabel}` };
  if (!nameOrEmptyField.safeParse(serviceName).success) {
    const problem = `${show(serviceName)} is not a valid Service name`;
    return { kind: "bad", path: ["metadata", "labels", serviceNameLabel], problem };
  }
  const notes: string[] = [];
  const family = addressType === "IPv4" ? "v4" : "v6";
  const usablePorts = toPorts(ports ?? [], notes);
  // Endpoints of a slice without ports are unreachable: the controller makes such slices for pods without the named
  // target port. (In KPNG's state files and streams they use the target port.) Headless Services need no ports.
  const isReachable = usablePorts.length > 0 || metadata.labels?.[headlessLabel] !== undefined;
  const decoded: Endpoint[] = [];
  for (const [index, endpoint] of (endpoints ?? []).entries()) {
    const addresses = endpoint.addresses ?? [];
    const wrongIndex = addresses.findIndex((address) => address.family !== family);
    if (wrongIndex >= 0) {
      const problem = `${show(addresses[wrongIndex]?.address)} does not match addressType ${addressType}`;
      return { kind: "bad", path: ["endpoints", index, "addresses", wrongIndex], problem };
    }
    if (addresses.length === 0) notes.push(`endpoint ${index} ignored: no address`);
    else if (isReachable) decoded.push(toEndpoint(endpoint, usablePorts));
  }
  if (!isReachable && endpoints?.length) notes.push("endpoints ignored: the slice has no port");
  return ok(
    {
      namespace: metadata.namespace,
      name: metadata.name,
      serviceName,
      endpoints: decoded,
      hasPodKeys: false,
      triggeredAtMs: parseTime(metadata.annotations?.[triggerTimeAnnotation]),
    },
    notes,
  );
}

/** Label with the name of the Service that a slice belongs to. */
export const serviceNameLabel = "kubernetes.io/service-name";

/** Label that Kubernetes controllers set on the slices of headless Services. */
const headlessLabel = "service.kubernetes.io/headless";

const triggerTimeAnnotation = "endpoints.kubernetes.io/last-change-trigger-time";

const hintShape = z.array(z.object({ name: z.string() })).nullish();

const endpointShape = z.object({
  addresses: z.array(addressField).nullish(),
  conditions: z
    .object({ ready: z.boolean().nullish(), serving: z.boolean().nullish(), terminating: z.boolean().nullish() })
    .nullish(),
  hostname: nameOrEmptyField.nullish(),
  nodeName: nameOrEmptyField.nullish(),
  zone: z.string().nullish(),
  targetRef: z.object({ kind: z.string().nullish(), name: nameOrEmptyField.nullish() }).nullish(),
  hints: z.object({ forZones: hintShape, forNodes: hintShape }).nullish(),
});

const portShape = z.object({
  name: nameOrEmptyField.nullish(),
  port: portOrZeroField.nullish(),
  protocol: wordField("TCP", "UDP", "SCTP").nullish(),
});

// 10 000 slices of 10 endpoints decode in 0.2 s with zod, so handwritten checks are not worth their code.
const sliceShape = z.object({
  metadata: metadataShape,
  addressType: wordField("IPv4", "IPv6", "FQDN"),
  ports: z.array(portShape).nullish(),
  endpoints: z.array(z.unknown()).nullish(),
});

const addressSliceShape = sliceShape.extend({ endpoints: z.array(endpointShape).nullish() });

const skipFqdn: Decoded<never> = { kind: "skip", note: "the slice contains host names (addressType FQDN)" };

/**
 * Like kube-proxy, ignores ports without a number. A missing name becomes "", as the API server does; manifests in
 * files may omit it.
 *
 * Source: Kubernetes, `pkg/apis/discovery/v1/defaults.go`, SetDefaults_EndpointPort.
 */
function toPorts(ports: readonly z.infer<typeof portShape>[], notes: string[]): readonly EndpointPort[] {
  return ports.flatMap(({ name, port, protocol }, index) => {
    if (port) return [{ name: name ?? "", port, protocol: protocol ?? "TCP" }];
    notes.push(`port ${index} (${show(name ?? "")}) ignored: no port number`);
    return [];
  });
}

function toEndpoint(endpoint: z.infer<typeof endpointShape>, ports: readonly EndpointPort[]): Endpoint {
  const { conditions, targetRef, hints } = endpoint;
  return {
    addresses: endpoint.addresses ? toSet(endpoint.addresses) : noAddresses,
    ports,
    conditions: shareConditions(
      conditions?.ready ?? true,
      conditions?.serving ?? true,
      conditions?.terminating ?? false,
    ),
    podName: targetRef?.kind === "Pod" ? (targetRef.name ?? "") : "",
    hostname: endpoint.hostname ?? "",
    nodeName: shareText(endpoint.nodeName ?? ""),
    zone: shareText(endpoint.zone ?? ""),
    hintedZones: hints?.forZones ? hints.forZones.map((hint) => hint.name).sort(compareText) : none,
    hintedNodes: hints?.forNodes ? hints.forNodes.map((hint) => hint.name).sort(compareText) : none,
  };
}

const none: readonly string[] = [];

/**
 * Parses an RFC 3339 time to milliseconds since 1970. Invalid text gives undefined: the time is used for metrics only.
 */
function parseTime(text: string | undefined): number | undefined {
  if (text === undefined || !/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/i.test(text)) return undefined;
  const ms = Date.parse(text);
  return Number.isNaN(ms) ? undefined : ms;
}
