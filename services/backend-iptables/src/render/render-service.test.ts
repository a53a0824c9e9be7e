import { endpoint, port, type ServiceParts, service } from "@kpng/model/testing/views.ts";
import { FrontendClaims } from "@kpng/service-plan/frontend-claims.ts";
import { planService } from "@kpng/service-plan/plan-service.ts";
import type { NodePlan } from "@kpng/service-plan/service-plan.ts";
import { expect, test } from "vitest";
import { renderOptions, rulesOf, rulesText } from "../testing/rules.ts";
import { renderFixedChains } from "./fixed-chains.ts";

// What the rules do is tested by packets (test/kernel), and with random states (outcomes.slow.test.ts).

const at = (address: string) => endpoint(address, { ports: [{ name: "", port: 8080 }] });
const bucket = "nat IP-10.96.0.0: -d 10.96.0.10/32 tcp --dport 80 -j SVC";
const to = (address: string): string => `-j DNAT --to-destination ${address}:8080`;

test.each<{ name: string; parts: ServiceParts; rules: readonly string[] }>([
  {
    name: "each of three endpoints gets a third, in the order of their addresses",
    parts: { endpoints: [at("10.0.1.9"), at("10.0.1.10"), at("10.0.1.1")] },
    rules: [
      bucket,
      `SVC: -p tcp -m statistic --mode random --probability 0.33333333349 ${to("10.0.1.10")}`,
      `SVC: -p tcp -m statistic --mode random --probability 0.50000000000 ${to("10.0.1.1")}`,
      `SVC: -p tcp ${to("10.0.1.9")}`,
    ],
  },
  {
    name: "affinity is looked up for all endpoints before the dice are thrown, and set either way",
    parts: { clientIPAffinitySeconds: 60, endpoints: [at("10.0.1.1"), at("10.0.1.2")] },
    rules: [
      bucket,
      ...["10.0.1.1", "10.0.1.2"].map(
        (to_) => `SVC: -p tcp -m recent --rcheck --seconds 60 --reap --name SEP -m recent --set --name SEP ${to(to_)}`,
      ),
      `SVC: -p tcp -m statistic --mode random --probability 0.50000000000 -m recent --set --name SEP ${to("10.0.1.1")}`,
      `SVC: -p tcp -m recent --set --name SEP ${to("10.0.1.2")}`,
    ],
  },
  {
    name: "whole addresses come with all protocols and ports, in lists of their own",
    parts: {
      ...{ mapIP: true, ports: [], type: "LoadBalancer", loadBalancerIPs: ["198.51.100.9"] },
      ...{ ipFilters: [{ sourceRanges: ["192.0.2.0/24"] }], endpoints: [at("10.0.1.1"), at("10.0.1.2")] },
    },
    rules: [
      "nat WHOLE: -d 10.96.0.10/32 -j SVC",
      "nat WHOLE: -d 198.51.100.9/32 -j FW",
      "filter WHOLE-FIREWALL: -d 198.51.100.9/32 -j DROP",
      "SVC: -m statistic --mode random --probability 0.50000000000 -j DNAT --to-destination 10.0.1.1",
      "SVC: -j DNAT --to-destination 10.0.1.2",
      "EXT: -j MARK-MASQ",
      "EXT: -j SVC",
      "FW: -s 192.0.2.0/24 -j EXT",
      "FW:",
    ],
  },
  {
    name: "without endpoints, whole addresses are refused in lists of their own",
    parts: { mapIP: true, ports: [], externalIPs: ["198.51.100.9"], portHasEndpoints: [] },
    rules: ["filter WHOLE-SERVICES: -d 10.96.0.10/32 -j REJECT", "filter WHOLE-EXTERNAL: -d 198.51.100.9/32 -j REJECT"],
  },
])("$name", ({ parts, rules }) => {
  const node: Partial<NodePlan> = { podTraffic: undefined };
  expect(rulesOf(service("ns/web", parts), { node })).toEqual(rules);
});

test("ports of Services come before whole addresses, in nat and filter, and the node's own addresses are left alone", () => {
  const options = renderOptions();
  const owner = service("a/all", { mapIP: true, ips: ["10.96.0.1"], externalIPs: ["198.51.100.9"], ports: [] });
  const other = service("z/dns", { ips: ["10.96.0.2"], externalIPs: ["198.51.100.9"], endpoints: [at("10.0.1.1")] });
  const empty = service("z/empty", { ips: ["10.96.0.3"], externalIPs: ["198.51.100.9"], ports: [port(81)] });
  const claims = new FrontendClaims();
  const withEndpoint = { ...owner, endpoints: [at("10.0.1.2")] };
  const plans = [withEndpoint, other, empty].map((each) => planService(each, options.node));
  for (const plan of plans) claims.put(plan);
  const lines = rulesText(
    plans.map((plan) => claims.withOwned(plan)),
    options,
  ).split("\n");
  const chain = (name: string) =>
    lines
      .filter((line) => line.startsWith(`-A KPNG-${name} `))
      .map((line) => line.replace(/-m comment --comment "[^"]*" /, "").replace(`-A KPNG-${name} `, ""));
  expect(chain("SERVICES").slice(-2)).toEqual([
    "-m addrtype ! --dst-type LOCAL -j KPNG-WHOLE",
    "-m addrtype --dst-type LOCAL -j KPNG-NODEPORTS",
  ]);
  expect(chain("WHOLE").map((rule) => rule.replace(/-[A-Z2-7]{16}$/, ""))).toEqual([
    "-d 10.96.0.1/32 -j KPNG-SVC",
    "-d 198.51.100.9/32 -p tcp -m tcp --dport 80 -j RETURN",
    "-d 198.51.100.9/32 -p tcp -m tcp --dport 81 -j RETURN",
    "-d 198.51.100.9/32 -j KPNG-EXT",
  ]);
  expect(chain("EXTERNAL-SERVICES")[0]).toContain("--dport 81 -j REJECT");
});

test("INVALID is dropped before anything is accepted, unless conntrack is liberal", () => {
  const first = (isConntrackLiberal: boolean) =>
    renderFixedChains(renderOptions({ isConntrackLiberal })).get("filter KPNG-FORWARD")?.head[0];
  expect(first(false)).toBe("-m conntrack --ctstate INVALID -j DROP");
  expect(first(true)).toContain("-m mark --mark 0x4000/0x4000 -j ACCEPT");
});

test("the mark is the bit that was asked for, in every rule", () => {
  const chains = renderFixedChains(renderOptions({ masqueradeMark: 0x20 }));
  const rules = [...chains.values()].flatMap(({ head, tail }) => [...head, ...tail]);
  const marks = rules.flatMap((rule) => /(?:--mark|--set-xmark) (\S+)/.exec(rule)?.[1] ?? []);
  expect(new Set(marks)).toEqual(new Set(["0x20/0x20", "0x20/0x0"]));
});
