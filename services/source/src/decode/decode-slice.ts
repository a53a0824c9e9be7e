import { noAddresses } from "@kpng/model/address.ts";
import { compareText } from "@kpng/model/collections.ts";
import type { Endpoint, EndpointPort, EndpointSlice } from "@kpng/model/endpoint.ts";
import { shareConditions, shareText } from "@kpng/model/shared-values.ts";
import { z } from "zod";
import { asksForWholeAddresses, headlessLabel, proxyNameLabel } from "./decode-service.ts";
import {
  addressField,
  bad,
  type Decoded,
  type FieldProblem,
  metadataShape,
  nameOrEmptyField,
  ok,
  parseParts,
  portOrZeroField,
  show,
  toSet,
  wordField,
} from "./decoded.ts";

/**
 * Decodes a discovery.k8s.io/v1 EndpointSlice. Absent conditions get kube-proxy's defaults, absent port fields get the
 * API server's defaults, and invalid parts are skipped, as in kube-proxy (`endpointslicecache.go`). The result is
 * "skip" for slices of host names, slices without a Service and headless slices (`server.go`); the result "bad" names
 * the first problem outside the {@link sliceParts}. Pure.
 */
export function decodeSlice(object: unknown): Decoded<EndpointSlice> {
  const head = sliceHead.safeParse(object);
  if (!head.success) return bad(head.error);
  const skipped = whyIgnored(head.data);
  if (skipped !== undefined) return { kind: "skip", note: skipped };
  const serviceName = head.data.metadata.labels?.[serviceNameLabel] ?? "";
  if (!nameOrEmptyField.safeParse(serviceName).success) {
    const problem = `${show(serviceName)} is not a valid Service name`;
    return { kind: "bad", path: ["metadata", "labels", serviceNameLabel], problem };
  }
  const parsed = parseParts(sliceShape, sliceParts, object);
  return parsed.kind === "bad" ? parsed : toSlice(parsed.data, serviceName, parsed.skipped);
}

/** Returns the reason why no proxy needs the slice; undefined if a proxy may need it. */
function whyIgnored({ metadata: { labels }, addressType }: z.infer<typeof sliceHead>): string | undefined {
  if (addressType === "FQDN") return "the slice contains host names (addressType FQDN)";
  if ((labels?.[serviceNameLabel] ?? "") === "") return `the slice has no label ${serviceNameLabel}`;
  // The EndpointSlice controller copies the proxy name to the slices. A headless Service with a proxy name is served by
  // an external program, which needs the endpoints; one with whole addresses by us.
  const isForProgram = (labels?.[proxyNameLabel] ?? "") !== "" || asksForWholeAddresses(labels);
  return labels?.[headlessLabel] !== undefined && !isForProgram
    ? `the slice has the label ${headlessLabel}`
    : undefined;
}

function toSlice(
  { metadata, addressType, endpoints, ports }: z.infer<typeof sliceShape>,
  serviceName: string,
  skippedParts: readonly FieldProblem[],
): Decoded<EndpointSlice> {
  const notes: string[] = [];
  const skipped = [...skippedParts];
  const family = addressType === "IPv6" ? "v6" : "v4";
  const usablePorts = toPorts(ports ?? [], notes);
  // The controller creates slices without ports for pods that lack the named target port. Headless Services need no
  // ports.
  const isReachable = usablePorts.length > 0 || metadata.labels?.[headlessLabel] !== undefined;
  const decoded: Endpoint[] = [];
  for (const [index, endpoint] of (endpoints ?? []).entries()) {
    const all = endpoint.addresses ?? [];
    const addresses = all.filter((address) => address.family === family);
    for (const [position, { family: other, address }] of all.entries()) {
      if (other === family) continue;
      const problem = `${show(address)} does not match addressType ${addressType}`;
      skipped.push({ path: ["endpoints", index, "addresses", position], problem });
    }
    if (addresses.length === 0) notes.push(`endpoint ${index} ignored: no address`);
    else if (isReachable) decoded.push(toEndpoint({ ...endpoint, addresses }, usablePorts));
  }
  if (!isReachable && endpoints?.length) notes.push("endpoints ignored: the slice has no port");
  const { namespace, name } = metadata;
  const triggeredAtMs = parseTime(metadata.annotations?.[triggerTimeAnnotation]);
  return ok({ namespace, name, serviceName, endpoints: decoded, hasPodKeys: false, triggeredAtMs }, notes, skipped);
}

const serviceNameLabel = "kubernetes.io/service-name";

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

// With zod, 10 000 slices of 10 endpoints decode in 0.2 s, so handwritten checks are not worth the code.
const sliceHead = z.object({ metadata: metadataShape, addressType: wordField("IPv4", "IPv6", "FQDN") });

const sliceShape = sliceHead.extend({
  ports: z.array(portShape).nullish(),
  endpoints: z.array(endpointShape).nullish(),
});

const sliceParts: readonly string[] = [
  "ports.*",
  "endpoints.*",
  "endpoints.*.addresses.*",
  "endpoints.*.hostname",
  "endpoints.*.nodeName",
  "endpoints.*.targetRef.name",
];

/** Ignores ports without a number, as kube-proxy does. A missing name is "" (`discovery/v1/defaults.go`). */
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

/** Parses an RFC 3339 time to milliseconds since 1970; undefined for any other string. */
function parseTime(text: string | undefined): number | undefined {
  if (text === undefined || !/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/i.test(text)) return undefined;
  const ms = Date.parse(text);
  return Number.isNaN(ms) ? undefined : ms;
}
