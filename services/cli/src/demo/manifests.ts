import { mkdirSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Host, network } from "@kpng/laboratory/one-node.ts";

/** An address family of the demo: its EndpointSlice, and the external IPs that its Service has first and later. */
export interface Family {
  readonly name: "IPv4" | "IPv6";
  readonly external: string;
  readonly moved: string;
  readonly addressOf: (host: Host) => string;
}

export const families: readonly Family[] = [
  { name: "IPv4", external: "198.51.100.10", moved: "198.51.100.20", addressOf: ({ v4 }) => v4 },
  { name: "IPv6", external: "2001:db8:100::10", moved: "2001:db8:100::20", addressOf: ({ v6 }) => v6 },
];

/** Port of the Service in each protocol, and the port of its pods. */
export const servicePorts = [
  { name: "http", protocol: "TCP", port: 80, targetPort: 8080 },
  { name: "dns", protocol: "UDP", port: 53, targetPort: 8053 },
] as const;

/** Writes the manifests of a cluster with one node, and a dual-stack Service with these pods, to a new folder. */
export function writeManifests(folder: string, pods: readonly Host[]): void {
  mkdirSync(folder);
  const { name, v4, v6 } = network.node;
  replaceManifest(folder, "node", {
    apiVersion: "v1",
    kind: "Node",
    metadata: { name },
    spec: { podCIDRs: ["10.1.1.0/24", "fd00:10:1:1::/64"] },
    status: { addresses: [v4, v6].map((address) => ({ type: "InternalIP", address })) },
  });
  for (const family of families) writeSlice(folder, family, pods);
  const externalIPs = families.map(({ external }) => external);
  writeService(folder, externalIPs);
}

/** Writes the Service with these external IPs. Returns the time of the change, by `performance.now()`. */
export function writeService(folder: string, externalIPs: readonly string[]): number {
  return replaceManifest(folder, "service", {
    apiVersion: "v1",
    kind: "Service",
    metadata: { name: "web", namespace: "default" },
    spec: { type: "ClusterIP", clusterIPs: ["10.96.0.10", "fd00:10:96::10"], externalIPs, ports: servicePorts },
  });
}

/** Writes an EndpointSlice with these pods. Returns the time of the change, by `performance.now()`. */
export function writeSlice(folder: string, { name, addressOf }: Family, pods: readonly Host[]): number {
  const labels = { "kubernetes.io/service-name": "web" };
  return replaceManifest(folder, `endpointslice-${name}`, {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: { name: `web-${name.toLowerCase()}`, namespace: "default", labels },
    addressType: name,
    ports: servicePorts.map(({ name, protocol, targetPort }) => ({ name, protocol, port: targetPort })),
    endpoints: pods.map((pod) => ({
      addresses: [addressOf(pod)],
      conditions: { ready: true },
      nodeName: network.node.name,
    })),
  });
}

/** Replaces a manifest by a rename, as editors and ConfigMap volumes do. */
function replaceManifest(folder: string, name: string, manifest: object): number {
  writeFileSync(`${folder}.next`, JSON.stringify(manifest));
  const changedAtMs = performance.now();
  renameSync(`${folder}.next`, join(folder, `${name}.json`));
  return changedAtMs;
}
