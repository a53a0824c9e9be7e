import type { Dice } from "../../peer/kube-proxy/generate-pods.ts";

/**
 * Returns a random state of many Services as a Kubernetes List, to make syncs large: IPv4, two ports each, up to six
 * endpoints, some with node ports, affinity or without ready endpoints. Two states of the same size share about half of
 * their objects.
 */
export function manyServices(count: number, dice: Dice): string {
  const items = Array.from({ length: count }, (_, at) => at)
    .filter(() => dice.chance(80))
    .flatMap((at) => [makeService(at, dice), makeSlice(at, dice)]);
  return JSON.stringify({ apiVersion: "v1", kind: "List", items });
}

const ports = [
  { name: "http", protocol: "TCP", port: 80, targetPort: 8080 },
  { name: "dns", protocol: "UDP", port: 53, targetPort: 8053 },
];

function makeService(at: number, dice: Dice): object {
  const clusterIP = `10.96.${at >> 8}.${at & 255}`;
  const hasNodePorts = dice.chance(20);
  return {
    apiVersion: "v1",
    kind: "Service",
    metadata: { namespace: "many", name: `service-${at}` },
    spec: {
      type: hasNodePorts ? "NodePort" : "ClusterIP",
      clusterIP,
      clusterIPs: [clusterIP],
      ports: ports.map((port, index) => ({ ...port, ...(hasNodePorts ? { nodePort: 30_000 + 2 * at + index } : {}) })),
      ...(hasNodePorts && dice.chance(50) ? { externalTrafficPolicy: "Local" } : {}),
      ...(dice.chance(10) ? { sessionAffinity: "ClientIP" } : {}),
    },
  };
}

function makeSlice(at: number, dice: Dice): object {
  return {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: { namespace: "many", name: `slice-${at}`, labels: { "kubernetes.io/service-name": `service-${at}` } },
    addressType: "IPv4",
    ports: ports.map(({ name, protocol, targetPort }) => ({ name, protocol, port: targetPort })),
    endpoints: Array.from({ length: dice.number(0, 6) }, (_, index) => {
      const ready = dice.chance(90);
      return {
        addresses: [`10.1.${at & 255}.${16 * (at >> 8) + index + 1}`],
        nodeName: index === 0 ? "n1" : "n2",
        conditions: { ready, serving: ready },
      };
    }),
  };
}
