import type { makePick } from "@kpng/process/random.ts";
import type { ObjectChange } from "@kpng/source/source.ts";
import {
  addresses,
  dead,
  draining,
  endpoint,
  httpPort,
  node,
  ready,
  service,
  servicePort,
  slice,
  starting,
} from "@kpng/source/testing/build.ts";

type Pick = ReturnType<typeof makePick>;

const adminPort = { name: "admin", port: 9000, protocol: "TCP" } as const;
const dnsPort = { name: "dns", port: 53, protocol: "UDP" } as const;

/**
 * Returns a random change of one of few Services, slices and nodes, so that changes often affect the same object. It
 * uses every field that a view depends on or that the wire could lose.
 */
export function randomChange(pick: Pick): ObjectChange {
  const name = pick("a", "a-b", "b");
  switch (pick("service", "service", "slice", "slice", "slice", "slice", "node", "cidrs", "gone")) {
    case "service":
      return { kind: "put-service", service: randomService(name, pick) };
    case "slice":
      return { kind: "put-slice", slice: randomSlice(name, pick) };
    case "node": {
      const more = { addresses: pick([], ["192.0.2.10", "2001:db8::10"]), podCIDRs: pick([], ["10.1.0.0/24"]) };
      const fields = { zone: pick("z1", "z2", ""), isEligible: pick(true, false), labels: pick({}, { l: "v" }) };
      return { kind: "put-node", node: node(pick("n1", "n2", "n3"), { ...fields, ...more }) };
    }
    case "cidrs":
      return { kind: "set-service-cidrs", serviceCIDRs: pick([], ["10.96.0.0/12"], ["10.96.0.0/12", "fd00::/108"]) };
    default:
      return pick<ObjectChange>(
        { kind: "delete-service", key: `ns/${name}` },
        { kind: "delete-slice", key: `ns/${name}/${pick(name, "s1")}` },
        { kind: "delete-node", name: pick("n1", "n2") },
      );
  }
}

function randomService(name: string, pick: Pick) {
  const some = (...texts: string[]) => pick(addresses(), addresses(...texts));
  return service({
    name,
    type: pick("ClusterIP", "NodePort", "LoadBalancer"),
    clusterIPs: pick(addresses("10.96.0.1"), addresses("10.96.0.1", "fd00::a")),
    proxyName: pick("", "", "", "x"),
    labels: pick({}, { b: "2", a: "1" }),
    isHeadless: pick(false, false, false, true),
    externalIPs: some("192.0.2.2", "192.0.2.1"),
    loadBalancerIPs: pick(undefined, undefined, some("198.51.100.1", "2001:db8::1")),
    proxyModeLoadBalancerIPs: some("198.51.100.9"),
    ipFilters: pick([], [{ sourceRanges: ["10.0.0.0/8", "192.168.0.0/16"] }]),
    ports: [
      servicePort({ nodePort: pick(0, 30_080), targetPort: pick<number | string>(8_080, "web") }),
      ...pick([], [servicePort({ name: "admin", port: 90 })], [servicePort({ ...dnsPort })]),
    ],
    internalTrafficPolicy: pick("Cluster", "Cluster", "Local"),
    externalTrafficPolicy: pick("Cluster", "Local"),
    healthCheckNodePort: pick(0, 31_000),
    clientIPAffinitySeconds: pick(undefined, 10_800),
    ...pick({}, { createdSeconds: pick(1, 1_700_000_000), uid: pick("0b1c", "7f3e") }),
  });
}

function randomSlice(serviceName: string, pick: Pick) {
  // All endpoints of a slice have hints or, while they change, some of them; all hints are of the same topology.
  const hints = pick("none", "none", "zones", "nodes", "nodes", "mixed");
  const isOf = (kind: string): boolean => hints === kind || (hints === "mixed" && pick(true, false));
  // In a slice with the keys of a state file, which is named like its Service, each pod occurs once.
  const name = pick(serviceName, "s1");
  const hasPodKeys = name === serviceName && pick(true, false);
  const made = Array.from({ length: pick(0, 1, 2, 3, 6) }, (_, index) => {
    const number = index + pick(1, 1, 2);
    const ip = `10.1.0.${number}`;
    const nodeName = pick("n1", "n2", "n3", "");
    return endpoint(pick([ip], [ip], [ip], [ip, "10.1.0.99"], [ip, `fd00::${number}`], [`fd00::${number}`]), {
      nodeName,
      zone: pick("", "z1"),
      hostname: pick("", "h"),
      // One pod with two endpoints, and two pods with the same name.
      podName: pick("", `p${index}`, `p${index}`, hasPodKeys ? "" : "p0"),
      ports: pick([httpPort], [httpPort], [httpPort, adminPort], [dnsPort, httpPort], []),
      conditions: pick(ready, ready, ready, draining, starting, dead),
      hintedZones: isOf("zones") ? pick(["z1"], ["z2"], ["z1", "z2"]) : [],
      hintedNodes: isOf("nodes") ? pick([nodeName], ["n1"], ["n1", "n2"], [""]) : [],
    });
  });
  return slice(made, { serviceName, name, hasPodKeys });
}
