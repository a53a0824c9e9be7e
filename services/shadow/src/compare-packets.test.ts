import { endpoint, port, service, view } from "@kpng/model/testing/views.ts";
import { planService } from "@kpng/service-plan/plan-service.ts";
import { indexPlans } from "@kpng/service-plan/planned-node.ts";
import { nodePlan } from "@kpng/service-plan/testing/node-plans.ts";
import { expect, test } from "vitest";
import { comparePackets } from "./compare-packets.ts";

const whole = view([
  service("ns/web", {
    ips: ["10.96.0.10"],
    type: "LoadBalancer",
    loadBalancerIPs: ["5.6.7.8"],
    ipFilters: [{ sourceRanges: ["203.0.113.0/25"] }],
    clientIPAffinitySeconds: 60,
    ports: [port(80, { name: "http", nodePort: 30_080 })],
    endpoints: [
      endpoint("10.0.1.1", { ports: [{ name: "http", port: 8080 }], isOnNode: true }),
      endpoint("10.0.2.2", { ports: [{ name: "http", port: 8080 }] }),
    ],
  }),
  service("ns/none", { ips: ["10.96.0.11"] }),
]);

/** kube-proxy 1.36's rules for this view, written by hand. */
const kubeProxy = `*filter
:KUBE-SERVICES - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
-A INPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
-A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
-A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
-A OUTPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-PROXY-FIREWALL -d 5.6.7.8/32 -p tcp -m comment --comment "ns/web:http traffic not accepted by KUBE-FW-A" -m tcp --dport 80 -j DROP
-A KUBE-SERVICES -d 10.96.0.11/32 -p tcp -m comment --comment "ns/none has no endpoints" -m tcp --dport 80 -j REJECT
*nat
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-MARK-MASQ - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -j MASQUERADE --random-fully
-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m comment --comment "ns/web:http cluster IP" -m tcp --dport 80 -j KUBE-SVC-A
-A KUBE-SERVICES -d 5.6.7.8/32 -p tcp -m comment --comment "ns/web:http loadbalancer IP" -m tcp --dport 80 -j KUBE-FW-A
-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A KUBE-NODEPORTS -p tcp -m comment --comment "ns/web:http" -m tcp --dport 30080 -j KUBE-EXT-A
-A KUBE-FW-A -s 203.0.113.0/25 -m comment --comment "ns/web:http loadbalancer IP" -j KUBE-EXT-A
-A KUBE-EXT-A -m comment --comment "masquerade traffic for ns/web:http external destinations" -j KUBE-MARK-MASQ
-A KUBE-EXT-A -j KUBE-SVC-A
-A KUBE-SVC-A ! -s 10.0.0.0/8 -d 10.96.0.10/32 -p tcp -m comment --comment "ns/web:http cluster IP" -m tcp --dport 80 -j KUBE-MARK-MASQ
-A KUBE-SVC-A -m recent --rcheck --seconds 60 --reap --name KUBE-SEP-1 --mask 255.255.255.255 --rsource -j KUBE-SEP-1
-A KUBE-SVC-A -m recent --rcheck --seconds 60 --reap --name KUBE-SEP-2 --mask 255.255.255.255 --rsource -j KUBE-SEP-2
-A KUBE-SVC-A -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-1
-A KUBE-SVC-A -j KUBE-SEP-2
-A KUBE-SEP-1 -s 10.0.1.1/32 -j KUBE-MARK-MASQ
-A KUBE-SEP-1 -p tcp -m recent --set --name KUBE-SEP-1 --mask 255.255.255.255 --rsource -m tcp -j DNAT --to-destination 10.0.1.1:8080
-A KUBE-SEP-2 -s 10.0.2.2/32 -j KUBE-MARK-MASQ
-A KUBE-SEP-2 -p tcp -m recent --set --name KUBE-SEP-2 --mask 255.255.255.255 --rsource -m tcp -j DNAT --to-destination 10.0.2.2:8080
`;

async function compare(theirs: string) {
  const node = nodePlan();
  const links = {
    localCIDRs: ["127.0.0.0/8", "192.168.0.2"],
    addresses: ["192.168.0.2"],
    links: [],
    outInterface: (address: string) => (address.startsWith("10.0.") ? "cbr0" : "eth0"),
  };
  const plans = [...whole.services.values()].map((each) => planService(each, node));
  const planned = indexPlans(node, links.localCIDRs, plans);
  return comparePackets(
    { mode: "iptables", text: theirs },
    planned,
    { view: whole, links, mode: "iptables" },
    new AbortController().signal,
  );
}

test("rules that do what the plan says are no difference", async () => {
  const { differences, packets, services } = await compare(kubeProxy);
  expect(differences).toEqual([]);
  expect(services).toBe(2);
  expect(packets).toBeGreaterThan(12);
});

test.each([
  {
    name: "an endpoint that is missing, for each sender",
    spoil: (text: string) => text.replace(/^-A KUBE-SEP-2 .*\n/gm, ""),
    told: { sender: "outside", address: "192.168.0.2", port: 30_080, addressKind: "node port" },
  },
  {
    name: "a pod that reaches itself with its own address",
    spoil: (text: string) => text.replace("-A KUBE-SEP-1 -s 10.0.1.1/32 -j KUBE-MARK-MASQ\n", ""),
    told: { sender: "itself", source: "10.0.1.1", inInterface: "cbr0", addressKind: "cluster IP" },
  },
  {
    name: "a range that is wider",
    spoil: (text: string) => text.replace("-s 203.0.113.0/25", "-s 203.0.113.0/24"),
    told: { sender: "outside", source: "203.0.113.254", addressKind: "load-balancer IP", kpng: ["dropped"] },
  },
  {
    name: "clients of the cluster that are masqueraded",
    spoil: (text: string) => text.replace("! -s 10.0.0.0/8 ", "! -s 10.9.0.0/16 "),
    told: { sender: "pod", address: "10.96.0.10" },
  },
  {
    name: "affinity of another time",
    spoil: (text: string) => text.replaceAll("--seconds 60", "--seconds 10800"),
    told: { sender: "node", address: "10.96.0.10" },
  },
  {
    name: "a refusal that is missing",
    spoil: (text: string) => text.replace(/^.*has no endpoints.*\n/m, ""),
    told: { servicePort: "ns/none", address: "10.96.0.11", kubeProxy: ["no rule"], kpng: ["refused"] },
  },
  {
    name: "a missing chain that rules jump to",
    spoil: (text: string) => text.replace(/^-A KUBE-FW-A .*\n/m, ""),
    told: { address: "5.6.7.8", kubeProxy: ["not understood: table nat has no chain KUBE-FW-A"] },
  },
])("it names $name", async ({ spoil, told }) => {
  const text = spoil(kubeProxy);
  expect(text).not.toBe(kubeProxy);
  const { differences } = await compare(text);
  expect(differences).toContainEqual(expect.objectContaining(told));
});
