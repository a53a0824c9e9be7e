import type { ApiClient, KubeObject } from "../../cluster/api-client.ts";
import { slicesPath } from "../../cluster/objects.ts";
import { rulesAnswer } from "./compare.ts";
import type { SavedRules } from "./kube-proxy.ts";
import { askAll } from "./questions.ts";
import { nodes } from "./world.ts";

const namespace = "sentinel";

const service: KubeObject = {
  apiVersion: "v1",
  kind: "Service",
  metadata: { name: "zones", namespace },
  spec: {
    ipFamilyPolicy: "RequireDualStack",
    ipFamilies: ["IPv4", "IPv6"],
    clusterIP: "10.96.1.1",
    clusterIPs: ["10.96.1.1", "fd00:10:96::101"],
    ports: [{ port: 80, protocol: "TCP" }],
  },
};

const hosts = { IPv4: "10.244.254.", IPv6: "fd00:244:fe::" };

/**
 * Creates a Service whose rules show whether a kube-proxy knows the zone of its node. kube-proxy learns the zone from a
 * separate watch, so it may install rules before and again afterwards.
 */
export async function writeSentinel(api: ApiClient): Promise<void> {
  await api.create("/api/v1/namespaces", { apiVersion: "v1", kind: "Namespace", metadata: { name: namespace } });
  await api.create(`/api/v1/namespaces/${namespace}/services`, service);
  for (const addressType of ["IPv4", "IPv6"] as const) {
    await api.create(slicesPath(namespace), {
      apiVersion: "discovery.k8s.io/v1",
      kind: "EndpointSlice",
      metadata: {
        name: `zones-${addressType.toLowerCase()}`,
        namespace,
        labels: { "kubernetes.io/service-name": "zones" },
      },
      addressType,
      ports: [{ name: "", port: 80, protocol: "TCP" }],
      endpoints: nodes.map(({ name, zone = "d" }) => ({
        addresses: [`${hosts[addressType]}${name.slice(1)}`],
        hints: { forZones: [{ name: zone }] },
      })),
    });
  }
}

/** Returns whether the rules lead only to the endpoint with a hint for the node's zone, or to all if it has no zone. */
export function knowsZone(rules: SavedRules, nodeName: string): boolean {
  const answer = rulesAnswer(rules, nodeName);
  const isZoned = nodes.some(({ name, zone }) => name === nodeName && zone !== undefined);
  return askAll(service, nodeName).every((question) => {
    const host = question.family === "v4" ? hosts.IPv4 : hosts.IPv6;
    const reached = answer(question).split("; ");
    return isZoned
      ? reached.length === 1 && reached[0]?.startsWith(`to ${host}${nodeName.slice(1)}:`) === true
      : reached.length === nodes.length;
  });
}
