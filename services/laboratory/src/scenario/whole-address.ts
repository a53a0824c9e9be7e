import { named, publicAddress, type ServiceOptions, together, web } from "./build.ts";
import { unknownAddressPort, unknownPort } from "./everywhere.ts";
import {
  clusterIP,
  externalIP,
  fromEach,
  loadBalancerIP,
  n1,
  nodeAddress,
  type Outcome,
  outside,
  type Packet,
  pod,
  stranger,
} from "./packet.ts";
import { hosts, ranges } from "./places.ts";
import type { Scenario } from "./scenario.ts";

/** Pods answer on ports 8080 and 8443, which are not among the ports of these Services. */
const one = 8080;
const other = 8443;
const address = publicAddress(20);
/** Its address is that of no port in any scenario: IPVS would keep it for minutes. */
const headless: ServiceOptions = { isHeadless: true, ports: [], externalIPs: [publicAddress(30)] };
const masqueraded = { goesTo: ["b", "c"], source: "masqueraded" } as const;
const kept = { goesTo: ["b", "c"], source: "kept" } as const;

/** Returns the result for a packet that only proxies with whole addresses serve; `others` are further deviations. */
const whole = (outcome: Outcome, others: Packet["deviations"] = {}) =>
  ({ verdict: "untouched", deviations: { "whole-addresses-served": outcome, ...others } }) as const;

/** The same at an external or load-balancer IP that is also the address of a Service's port. */
const wholeBesidePort = (outcome: Outcome) => whole(outcome, unknownAddressPort.deviations);

/** The same at a cluster IP. */
const wholeClusterIP = (outcome: Outcome) => whole(outcome, unknownPort.deviations);

/** Services that take their addresses as a whole. */
export const wholeAddressScenarios: readonly Scenario[] = [
  {
    name: "a headless Service without ports that takes its external IPs as a whole",
    state: web(headless, ["b", "c"]),
    packets: [
      { from: outside, to: externalIP("web"), port: one, ...whole(masqueraded) },
      { from: outside, to: externalIP("web"), port: other, ...whole(masqueraded) },
      { from: outside, to: externalIP("web"), port: one, protocol: "sctp", ...whole(masqueraded) },
      { from: pod("a"), to: externalIP("web"), port: other, ...whole(masqueraded) },
      { from: n1, to: externalIP("web"), port: one, ...whole({ goesTo: ["b", "c"] }) },
      { from: outside, to: nodeAddress, port: 81, verdict: "untouched" },
    ],
  },
  {
    name: "whole addresses beside a port with another target port",
    state: web(
      {
        mapIP: true,
        ports: [{ port: other, targetPort: one, nodePort: 30_080, protocols: ["tcp"] }],
        externalIPs: [address],
      },
      ["b", "c"],
    ),
    packets: [
      { from: pod("a"), to: clusterIP("web"), port: other, protocol: "tcp", ...kept },
      { from: pod("a"), to: clusterIP("web"), port: other, protocol: "udp", ...wholeClusterIP(kept) },
      { from: pod("a"), to: clusterIP("web"), port: one, ...wholeClusterIP(kept) },
      { from: n1, to: clusterIP("web"), port: one, ...wholeClusterIP({ goesTo: ["b", "c"] }) },
      { from: outside, to: clusterIP("web"), port: one, ...wholeClusterIP(masqueraded) },
      { from: outside, to: externalIP("web"), port: other, protocol: "tcp", ...masqueraded },
      { from: outside, to: externalIP("web"), port: one, protocol: "tcp", ...wholeBesidePort(masqueraded) },
      { from: outside, to: nodeAddress, port: 30_080, protocol: "tcp", ...masqueraded },
      { from: outside, to: nodeAddress, port: 30_080, protocol: "udp", verdict: "untouched" },
    ],
  },
  {
    name: "whole addresses with external policy Local and an endpoint on the node",
    state: web({ ...headless, external: "Local" }, ["b", "c"]),
    packets: [
      { from: outside, to: externalIP("web"), port: one, ...whole({ goesTo: ["b"], source: "kept" }) },
      { from: pod("a"), to: externalIP("web"), port: other, ...whole(kept) },
      { from: n1, to: externalIP("web"), port: one, ...whole(masqueraded) },
    ],
  },
  {
    name: "whole addresses with external policy Local and no endpoint on the node",
    state: web({ ...headless, external: "Local" }, ["c"]),
    packets: [
      { from: outside, to: externalIP("web"), port: one, ...whole({ verdict: "silent" }) },
      { from: pod("a"), to: externalIP("web"), port: one, ...whole({ goesTo: ["c"], source: "kept" }) },
    ],
  },
  {
    name: "a pod that reaches itself at a whole address",
    state: web({ mapIP: true, ports: [{ port: 80 }] }, ["a"]),
    packets: [
      {
        from: pod("a"),
        to: clusterIP("web"),
        port: other,
        ...wholeClusterIP({ goesTo: ["a"], source: "masqueraded" }),
      },
    ],
  },
  {
    name: "whole addresses without endpoints",
    state: web({ mapIP: true, externalIPs: [address] }, []),
    packets: [
      ...fromEach([outside, pod("a")], {
        to: externalIP("web"),
        port: one,
        ...wholeBesidePort({ verdict: "refused" }),
      }),
      ...fromEach([pod("a"), n1], { to: clusterIP("web"), port: one, ...wholeClusterIP({ verdict: "refused" }) }),
    ],
  },
  {
    name: "ports of other Services at a whole address",
    state: together(
      web({ ...headless, externalIPs: [address] }, ["b", "c"]),
      named("dns", { number: 12, ports: [{ port: one, protocols: ["udp"] }], externalIPs: [address] }, ["d"]),
      named("empty", { number: 13, ports: [{ port: other, protocols: ["tcp"] }], externalIPs: [address] }, []),
    ),
    packets: [
      {
        ...{ from: outside, to: externalIP("dns"), port: one, protocol: "udp" },
        ...{ goesTo: ["d"], source: "masqueraded" },
      },
      { from: outside, to: externalIP("web"), port: one, protocol: "tcp", ...wholeBesidePort(masqueraded) },
      { from: outside, to: externalIP("web"), port: other, protocol: "udp", ...wholeBesidePort(masqueraded) },
      { from: outside, to: externalIP("empty"), port: other, protocol: "tcp", verdict: "refused" },
      { from: pod("a"), to: externalIP("empty"), port: other, protocol: "tcp", verdict: "refused" },
    ],
  },
  {
    name: "a whole load-balancer IP for some clients",
    state: web({ mapIP: true, loadBalancerIPs: [address], sourceRanges: [ranges.outside] }, ["b", "c"]),
    packets: [
      { from: outside, to: loadBalancerIP("web"), port: one, ...wholeBesidePort(masqueraded) },
      { from: stranger, to: loadBalancerIP("web"), port: one, ...wholeBesidePort({ verdict: "silent" }) },
      { from: pod("a"), to: loadBalancerIP("web"), port: one, ...wholeBesidePort({ verdict: "silent" }) },
      { from: pod("a"), to: clusterIP("web"), port: one, ...wholeClusterIP(kept) },
    ],
  },
  {
    name: "whole addresses with affinity",
    state: web({ ...headless, affinitySeconds: 600 }, ["b", "c"]),
    packets: [
      { from: outside, to: externalIP("web"), port: one, ...whole({ ...masqueraded, isSticky: true }) },
      { from: pod("a"), to: externalIP("web"), port: other, ...whole({ ...masqueraded, isSticky: true }) },
    ],
  },
  {
    name: "a whole external IP that is the node's own",
    state: web({ mapIP: true, externalIPs: [hosts.n1] }, ["b", "c"]),
    packets: [
      { from: outside, to: externalIP("web"), port: 80, ...masqueraded },
      ...fromEach([outside, pod("a"), n1], { to: nodeAddress, port: 81, verdict: "untouched" }),
    ],
  },
];
