import { endpoint, type ServiceParts, service } from "@kpng/model/testing/views.ts";
import { planService } from "@kpng/service-plan/plan-service.ts";
import { expect, test } from "vitest";
import { renderOptions } from "../testing/rules.ts";
import { renderFixedChains } from "./fixed-chains.ts";
import { renderService } from "./render-service.ts";

// What the rules do is tested by packets (test/kernel), and with random states (outcomes.slow.test.ts).

const at = (address: string) => endpoint(address, { ports: [{ name: "", port: 8080 }] });
const first = '-p tcp -m comment --comment "ns/web"';
const to = (address: string): string => `-j DNAT --to-destination ${address}:8080`;

test.each<{ name: string; parts: ServiceParts; rules: readonly string[] }>([
  {
    name: "each of three endpoints gets a third, in the order of their addresses",
    parts: { endpoints: [at("10.0.1.9"), at("10.0.1.10"), at("10.0.1.1")] },
    rules: [
      `${first} -m statistic --mode random --probability 0.33333333349 ${to("10.0.1.10")}`,
      `-p tcp -m statistic --mode random --probability 0.50000000000 ${to("10.0.1.1")}`,
      `-p tcp ${to("10.0.1.9")}`,
    ],
  },
  {
    name: "affinity is looked up for all endpoints before the dice are thrown, and set either way",
    parts: { clientIPAffinitySeconds: 60, endpoints: [at("10.0.1.1"), at("10.0.1.2")] },
    rules: [
      ...["10.0.1.1", "10.0.1.2"].map(
        (to_) => `-p tcp -m recent --rcheck --seconds 60 --reap --name SEP -m recent --set --name SEP ${to(to_)}`,
      ),
      `${first} -m statistic --mode random --probability 0.50000000000 -m recent --set --name SEP ${to("10.0.1.1")}`,
      `-p tcp -m recent --set --name SEP ${to("10.0.1.2")}`,
    ],
  },
])("$name", ({ parts, rules }) => {
  const options = renderOptions({ node: { podTraffic: undefined } });
  const { chains } = renderService(planService(service("ns/web", parts), options.node), options);
  const plain = (rule: string) => rule.replace(/KPNG-(SEP)-\S+ --mask \S+ --rsource/g, "$1");
  expect([...chains.values()].map((chain) => chain.map(plain))).toEqual([rules]);
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
