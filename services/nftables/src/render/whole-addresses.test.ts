import { endpoint, type ServiceParts, service } from "@kpng/model/testing/views.ts";
import { planService } from "@kpng/service-plan/plan-service.ts";
import type { NodePlan } from "@kpng/service-plan/service-plan.ts";
import { nodePlan } from "@kpng/service-plan/testing/node-plans.ts";
import { expect, test } from "vitest";
import { ServiceElements } from "./service-elements.ts";

// What the rules do is tested by packets (test/kernel), and with random states (outcomes.slow.test.ts).

const here = endpoint("10.0.0.1", { isOnNode: true, use: { cluster: true, local: true } });
const away = endpoint("10.0.1.1");
const headless: ServiceParts = { mapIP: true, isHeadless: true, ips: [], ports: [], externalIPs: ["198.51.100.9"] };

class Rules {
  readonly elements: ServiceElements;
  readonly #node: NodePlan;

  constructor(node: Partial<NodePlan> = {}) {
    this.#node = nodePlan(node);
    this.elements = new ServiceElements({ family: "v4", name: "kpng" }, 1_000, this.#node.podTraffic);
  }

  put(key: `${string}/${string}`, parts: ServiceParts | undefined): void {
    this.elements.put(key, parts && planService(service(key, parts), this.#node));
  }

  /** Rules of all chains, without the hashes in their names. *Shape:* `whole_ext: jump mark_masquerade`. */
  lines(): readonly string[] {
    return [...this.elements.chains.desired()]
      .flatMap(({ name, rules }) => rules.map((rule) => `${name}: ${rule}`))
      .map((line) => line.replaceAll(/_[0-9a-f]{16}/g, ""));
  }

  /** Commands since the last call. */
  commit(): string {
    const { chains } = this.elements;
    const commands = chains.additions() + chains.hooks() + chains.removals();
    chains.committed();
    return commands;
  }
}

const entry = (vmap: string, refused?: string): readonly string[] => [
  "whole_addresses: ip daddr . meta l4proto . th dport @refused return",
  "whole_addresses: ip daddr . meta l4proto . th dport @dropped return",
  "whole_addresses: fib daddr type local return",
  `whole_addresses: ip daddr vmap { ${vmap} }`,
  ...(refused === undefined
    ? []
    : ["whole_check: fib daddr type local return", `whole_check: ip daddr { ${refused} } reject`]),
  "whole_prerouting: jump whole_addresses",
  "whole_output: jump whole_addresses",
  "whole_forward: ct state new jump whole_check",
  "whole_filter_output: ct state new jump whole_check",
];

test.each<{ name: string; parts: ServiceParts; node?: Partial<NodePlan>; rules: readonly string[] }>([
  {
    name: "policy Cluster masquerades packets to an external IP, and spreads them at the same port",
    parts: { ...headless, endpoints: [here, away] },
    rules: [
      "whole_cluster: dnat to numgen random mod 2 map { 0 : 10.0.0.1, 1 : 10.0.1.1 }",
      "whole_ext: jump mark_masquerade",
      "whole_ext: goto whole_cluster",
      ...entry("198.51.100.9 : goto whole_ext"),
    ],
  },
  {
    name: "pods keep their address at a cluster IP",
    parts: { mapIP: true, ports: [], endpoints: [away] },
    rules: [
      "whole_cluster: dnat to numgen random mod 1 map { 0 : 10.0.1.1 }",
      "whole_int: ip saddr 10.0.0.0/8 goto whole_cluster",
      "whole_int: jump mark_masquerade",
      "whole_int: goto whole_cluster",
      ...entry("10.96.0.10 : goto whole_int"),
    ],
  },
  {
    name: "policy Local drops packets from outside where no endpoint is on the node, and serves pods and the node",
    parts: { ...headless, externalTrafficPolicy: "Local", endpoints: [away] },
    rules: [
      "whole_cluster: dnat to numgen random mod 1 map { 0 : 10.0.1.1 }",
      "whole_ext: ip saddr 10.0.0.0/8 goto whole_cluster",
      "whole_ext: fib saddr type local jump mark_masquerade",
      "whole_ext: fib saddr type local goto whole_cluster",
      "whole_ext: drop",
      ...entry("198.51.100.9 : goto whole_ext"),
    ],
  },
  {
    name: "without endpoints packets return, and are rejected where that is possible",
    parts: headless,
    rules: ["whole_ext: return", ...entry("198.51.100.9 : goto whole_ext", "198.51.100.9")],
  },
  {
    name: "source ranges are checked before an endpoint is chosen",
    parts: {
      ...{ mapIP: true, isHeadless: true, ips: [], ports: [], type: "LoadBalancer", loadBalancerIPs: ["198.51.100.9"] },
      ...{ ipFilters: [{ sourceRanges: ["192.0.2.0/24"] }], endpoints: [away] },
    },
    rules: [
      "ranges: ip saddr != @ranges drop",
      "whole_cluster: dnat to numgen random mod 1 map { 0 : 10.0.1.1 }",
      "whole_ext: jump mark_masquerade",
      "whole_ext: goto whole_cluster",
      "whole_ranges: jump ranges",
      "whole_ranges: goto whole_ext",
      ...entry("198.51.100.9 : goto whole_ranges"),
    ],
  },
])("$name", ({ parts, node, rules }) => {
  const all = new Rules(node);
  all.put("ns/all", parts);
  expect(all.lines()).toEqual(rules);
});

test("a client with affinity gets the endpoint that it had, whatever the port, while that is in the set", () => {
  const rules = new Rules();
  rules.put("ns/all", { ...headless, clientIPAffinitySeconds: 60, endpoints: [here, away] });
  const pick = rules.lines().filter((line) => line.startsWith("whole_cluster: "));
  const id = String.raw`([\da-f]{4}:[\da-f]+)`;
  const [, one, other] = new RegExp(`${id} : 10.0.0.1, ${id} : 10.0.1.1`).exec(pick[2] ?? "") ?? [];
  const client = "ip saddr timeout 60s : meta priority";
  const goThere = `dnat to meta priority map { ${one} : 10.0.0.1, ${other} : 10.0.1.1 }`;
  expect(pick.map((line) => line.replace("whole_cluster: ", ""))).toEqual([
    "meta priority set 0",
    `meta priority set ip saddr map @clients update @clients { ${client} }`,
    goThere,
    `meta priority set numgen random mod 2 map { 0 : ${one}, 1 : ${other} }`,
    "delete @clients { ip saddr : meta priority }",
    `update @clients { ${client} } ${goThere}`,
    goThere,
  ]);
  // The numbers of endpoints stay when others come or go.
  rules.put("ns/all", { ...headless, clientIPAffinitySeconds: 60, endpoints: [away] });
  expect(rules.lines().filter((line) => line.includes(`${other} : 10.0.1.1`))).toHaveLength(3);
});

test("the same state again writes nothing, an endpoint one chain, and the last Service takes all chains along", () => {
  const rules = new Rules();
  const declared = (commands: string): readonly string[] =>
    Array.from(commands.matchAll(/^add chain \S+ \S+ (\S+?)(?:_[0-9a-f]{16})?(?: |$)/gm), ([, name = ""]) => name);
  rules.put("ns/web", { endpoints: [away] });
  expect(rules.commit()).toBe("");
  rules.put("ns/all", { ...headless, endpoints: [here] });
  const first = rules.commit();
  expect(declared(first)).toHaveLength(8);
  // Packets meet the base chains when all else is there.
  expect(first.indexOf("hook")).toBeGreaterThan(first.indexOf("vmap"));
  rules.put("ns/all", { ...headless, endpoints: [here] });
  expect(rules.commit()).toBe("");
  rules.put("ns/all", { ...headless, endpoints: [here, away] });
  expect(declared(rules.commit())).toEqual(["whole_cluster"]);
  rules.put("ns/other", { ...headless, externalIPs: ["198.51.100.10"], endpoints: [here] });
  expect(declared(rules.commit())).toEqual(["whole_cluster", "whole_ext", "whole_addresses"]);
  rules.put("ns/other", undefined);
  rules.commit();
  rules.put("ns/all", { endpoints: [here] });
  expect(rules.commit().match(/^delete chain/gm)).toHaveLength(8);
  expect(rules.lines()).toEqual([]);
});
