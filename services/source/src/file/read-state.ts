import { type AddressSet, noAddresses } from "@kpng/model/address.ts";
import { compareText, getOrMake } from "@kpng/model/collections.ts";
import type { Endpoint } from "@kpng/model/endpoint.ts";
import { isRecord } from "@kpng/model/narrowing.ts";
import type { Node } from "@kpng/model/node.ts";
import type { Protocol, Service } from "@kpng/model/service.ts";
import { shareConditions, shareText } from "@kpng/model/shared-values.ts";
import { z } from "zod";
import {
  addressField,
  affinitySecondsField,
  cidrField,
  nameField,
  nameOrEmptyField,
  numberField,
  portField,
  portOrZeroField,
  problemsOf,
  show,
  stringMapField,
  toSet,
  wordField,
} from "../decode/decoded.ts";
import { below, type InputContent, type Place } from "./input-content.ts";

/**
 * Decodes a KPNG state file: a cluster state as YAML, in the format that `kpng SOURCE to-file` writes. Absent fields
 * get KPNG's defaults. An endpoint belongs to the Service that contains it, whatever its own fields say. Invalid
 * Services and nodes are omitted, with a problem for each invalid field and unknown key; `loadInput` decides whether
 * the rest is used.
 *
 * Keys are the field names of KPNG's Go structs in lower case, as gopkg.in/yaml.v2 writes them. As in KPNG, unknown
 * keys are rejected, because a misspelled key would silently drop a setting.
 *
 * Source: KPNG, `file2store.go` and `store2file.go`.
 */
export function readState(value: unknown, place: Place, content: InputContent): void {
  const parse = <T>(schema: z.ZodType<T>, part: unknown, at: Place): T | undefined => {
    const parsed = schema.safeParse(part);
    if (parsed.success) return parsed.data;
    for (const { path, problem } of problemsOf(parsed.error)) content.addProblem(below(at, ...path), problem);
    return undefined;
  };
  const lists = parse(stateShape, value, place);
  for (const [index, part] of (lists?.nodes ?? []).entries()) {
    const at = below(place, "nodes", index);
    const stated = parse(node, part, at);
    if (stated !== undefined) content.addNode(toNode(stated), at);
  }
  for (const [index, part] of (lists?.services ?? []).entries()) {
    const at = below(place, "services", index);
    const stated = parse(serviceShape, part, at);
    if (stated === undefined) continue;
    const object = toService(stated.service);
    content.addService(object, below(at, "service"));
    addSlices(object, stated.endpoints ?? [], at, content);
  }
}

function addressOf(family: "v4" | "v6") {
  return addressField.refine((parsed) => parsed.family === family, {
    error: ({ input }) => `${show(isRecord(input) ? input.address : input)} is not an address of family ${family}`,
  });
}

const addressSet = z
  .strictObject({ v4: z.array(addressOf("v4")).nullish(), v6: z.array(addressOf("v6")).nullish() })
  .transform(({ v4, v6 }): AddressSet => toSet([...(v4 ?? []), ...(v6 ?? [])]));

/** Numeric value of KPNG's protocol enum; 0 is "unknown". */
const protocol = numberField(0, 3);

const topology = z.strictObject({ node: nameOrEmptyField.nullish(), zone: z.string().nullish() });

const node = z.strictObject({
  name: nameField,
  topology: topology.nullish(),
  labels: stringMapField.nullish(),
  annotations: stringMapField.nullish(),
  // These three fields are our extension.
  addresses: z.array(addressField).nullish(),
  podcidrs: z.array(cidrField).nullish(),
  iseligible: z.boolean().nullish(),
});

const service = z.strictObject({
  namespace: nameOrEmptyField.nullish(),
  name: nameField,
  type: wordField("ClusterIP", "NodePort", "LoadBalancer", "ExternalName", "").nullish(),
  labels: stringMapField.nullish(),
  annotations: stringMapField.nullish(),
  ips: z
    .strictObject({
      clusterips: addressSet.nullish(),
      externalips: addressSet.nullish(),
      loadbalancerips: addressSet.nullish(),
      headless: z.boolean().nullish(),
    })
    .nullish(),
  ipfilters: z
    .array(z.strictObject({ targetips: addressSet.nullish(), sourceranges: z.array(cidrField).nullish() }))
    .nullish(),
  mapip: z.boolean().nullish(),
  ports: z
    .array(
      z.strictObject({
        name: nameOrEmptyField.nullish(),
        protocol: protocol.nullish(),
        port: portField,
        nodeport: portOrZeroField.nullish(),
        targetport: portOrZeroField.nullish(),
        targetportname: nameOrEmptyField.nullish(),
      }),
    )
    .nullish(),
  externaltraffictolocal: z.boolean().nullish(),
  internaltraffictolocal: z.boolean().nullish(),
  sessionaffinity: z
    .strictObject({ clientip: z.strictObject({ timeoutseconds: affinitySecondsField }).nullish() })
    .nullish(),
  healthchecknodeport: portOrZeroField.nullish(),
  // These four fields are our extension.
  createdseconds: z.int().min(0).nullish(),
  uid: z.string().nullish(),
  proxyname: z.string().nullish(),
  proxymodeloadbalancerips: addressSet.nullish(),
});

const endpoint = z.strictObject({
  // The hash is computed from the other fields. The value in the file is ignored.
  hash: z.unknown().optional(),
  namespace: z.string().nullish(),
  sourcename: nameOrEmptyField.nullish(),
  servicename: z.string().nullish(),
  podname: nameOrEmptyField.nullish(),
  endpoint: z
    .strictObject({
      hostname: nameOrEmptyField.nullish(),
      ips: addressSet.nullish(),
      // These two fields differ per node. They are in the file only because KPNG's type has them.
      local: z.boolean().nullish(),
      scopes: z.strictObject({ internal: z.boolean().nullish(), external: z.boolean().nullish() }).nullish(),
      portoverrides: z
        .array(
          z.strictObject({
            name: nameOrEmptyField.nullish(),
            port: portField,
            // This field is our extension.
            protocol: protocol.nullish(),
          }),
        )
        .nullish(),
    })
    .nullish(),
  conditions: z
    .strictObject({
      ready: z.boolean().nullish(),
      // These two fields are our extension.
      serving: z.boolean().nullish(),
      terminating: z.boolean().nullish(),
    })
    .nullish(),
  topology: topology.nullish(),
  hints: z
    .strictObject({
      zones: z.array(z.string()).nullish(),
      // This field is our extension.
      nodes: z.array(z.string()).nullish(),
    })
    .nullish(),
});

const serviceShape = z.strictObject({ service, endpoints: z.array(endpoint).nullish() });

const stateShape = z.strictObject({ nodes: z.array(z.unknown()).nullish(), services: z.array(z.unknown()).nullish() });

type StateNode = z.infer<typeof node>;
type StateService = z.infer<typeof service>;
type StateEndpoint = z.infer<typeof endpoint>;

const protocols: readonly (Protocol | undefined)[] = [undefined, "TCP", "UDP", "SCTP"];

function toNode(node: StateNode): Node {
  return {
    name: node.name,
    zone: node.topology?.zone ?? "",
    labels: node.labels ?? {},
    annotations: node.annotations ?? {},
    addresses: (node.addresses ?? []).map((parsed) => parsed.address),
    podCIDRs: node.podcidrs ?? [],
    isEligible: node.iseligible ?? true,
  };
}

function toService(service: StateService): Service {
  return {
    namespace: service.namespace || "default",
    name: service.name,
    type: service.type || "ClusterIP",
    ...(service.createdseconds ? { createdSeconds: service.createdseconds } : {}),
    ...(service.uid ? { uid: service.uid } : {}),
    proxyName: service.proxyname ?? "",
    labels: service.labels ?? {},
    annotations: service.annotations ?? {},
    isHeadless: service.ips?.headless ?? false,
    clusterIPs: service.ips?.clusterips ?? undefined,
    externalIPs: service.ips?.externalips ?? undefined,
    loadBalancerIPs: service.ips?.loadbalancerips ?? undefined,
    proxyModeLoadBalancerIPs: service.proxymodeloadbalancerips ?? noAddresses,
    ipFilters: (service.ipfilters ?? []).map(({ targetips, sourceranges }) => ({
      ...(targetips ? { targetIPs: targetips } : {}),
      sourceRanges: sourceranges ?? [],
    })),
    mapIP: service.mapip ?? false,
    ports: (service.ports ?? []).map((port) => ({
      name: port.name ?? "",
      protocol: protocols[port.protocol ?? 0] ?? "TCP",
      port: port.port,
      nodePort: port.nodeport ?? 0,
      // Like KPNG, this prefers the name (`endpoint.go`, PortMapping).
      targetPort: port.targetportname || (port.targetport ?? 0),
    })),
    internalTrafficPolicy: service.internaltraffictolocal ? "Local" : "Cluster",
    externalTrafficPolicy: service.externaltraffictolocal ? "Local" : "Cluster",
    clientIPAffinitySeconds: service.sessionaffinity?.clientip?.timeoutseconds,
    healthCheckNodePort: service.healthchecknodeport ?? 0,
  };
}

/**
 * Adds the slices of a Service: one slice for each `sourcename` of its endpoints, and one with the Service's name for
 * endpoints without a `sourcename`. In the latter slice, the key of an endpoint is its pod's name, as in KPNG, so each
 * pod can occur only once. Further endpoints of the same pod, which KPNG lost, go into slices `NAME~2`, `NAME~3` and so
 * on; Kubernetes names contain no tilde, so no `sourcename` from a cluster is the same.
 */
function addSlices(service: Service, stated: readonly StateEndpoint[], place: Place, content: InputContent): void {
  const slices = new Map<string, { readonly at: Place; readonly endpoints: Endpoint[] }>();
  const countByPod = new Map<string, number>();
  for (const [position, one] of stated.entries()) {
    const at = below(place, "endpoints", position);
    const endpoint = toEndpoint(one);
    if (endpoint.addresses.v4.length + endpoint.addresses.v6.length === 0) {
      content.addNote(at, "endpoint ignored: no address");
      continue;
    }
    let name = one.sourcename || service.name;
    if (name === service.name && endpoint.podName !== "") {
      const count = (countByPod.get(endpoint.podName) ?? 0) + 1;
      countByPod.set(endpoint.podName, count);
      if (count > 1) name = `${service.name}~${count}`;
    }
    getOrMake(slices, name, () => ({ at, endpoints: [] })).endpoints.push(endpoint);
  }
  const { namespace, name: serviceName } = service;
  for (const [name, { at, endpoints }] of slices) {
    content.addSlice({ namespace, name, serviceName, endpoints, hasPodKeys: name === serviceName }, at);
  }
}

function toEndpoint(stated: StateEndpoint): Endpoint {
  // As in KPNG, absent conditions mean ready, but conditions without `ready` mean not ready.
  const ready = stated.conditions ? (stated.conditions.ready ?? false) : true;
  return {
    addresses: stated.endpoint?.ips ?? noAddresses,
    ports: (stated.endpoint?.portoverrides ?? []).map(({ name, port, protocol }) => ({
      name: name ?? "",
      port,
      ...(protocol ? { protocol: protocols[protocol] } : {}),
    })),
    conditions: shareConditions(ready, stated.conditions?.serving ?? ready, stated.conditions?.terminating ?? false),
    podName: stated.podname ?? "",
    hostname: stated.endpoint?.hostname ?? "",
    nodeName: shareText(stated.topology?.node ?? ""),
    zone: shareText(stated.topology?.zone ?? ""),
    hintedZones: [...(stated.hints?.zones ?? [])].sort(compareText),
    hintedNodes: [...(stated.hints?.nodes ?? [])].sort(compareText),
  };
}
