import { endpoint, type ServiceParts, service } from "@kpng/model/testing/views.ts";
import { planService } from "@kpng/service-plan/plan-service.ts";
import type { NodePlan } from "@kpng/service-plan/service-plan.ts";
import { nodePlan } from "@kpng/service-plan/testing/node-plans.ts";
import { expect, test } from "vitest";
import { ServiceElements } from "./service-elements.ts";

// What the rules do is tested by packets (test/kernel).

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
  rules.commit();
  rules.put("ns/all", { ...headless, endpoints: [away] });
  expect(rules.commit()).toMatch(/^delete map ip kpng clients_[0-9a-f]{16}$/m);
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
