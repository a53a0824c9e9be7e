import type { ServiceView } from "@kpng/model/node-view.ts";
import { serviceKey } from "@kpng/model/service.ts";
import { endpoint, port, service } from "@kpng/model/testing/views.ts";
import { planService } from "@kpng/service-plan/plan-service.ts";
import { expect, test } from "vitest";
import { renderFixedChains } from "../render/fixed-chains.ts";
import { renderService } from "../render/render-service.ts";
import type { ChainBody, ChainId } from "../render/rule.ts";
import { renderOptions } from "../testing/rules.ts";
import { DesiredChains } from "./desired-chains.ts";

const options = renderOptions();

function newChains(): DesiredChains {
  return new DesiredChains(renderFixedChains(options));
}

function put(chains: DesiredChains, item: ServiceView): void {
  chains.put(serviceKey(item.service), renderService(planService(item, options.node), options));
}

const at = (address: string, isOnNode = false) => endpoint(address, { ports: [{ name: "", port: 8080 }], isOnNode });
const web = (...addresses: readonly string[]) =>
  service("ns/web", { ips: ["10.96.0.10"], endpoints: addresses.map((address) => at(address)) });
const api = service("ns/api", { ips: ["10.96.0.11"], endpoints: [at("10.0.0.7", true)] });
const far = service("ns/far", {
  ips: ["10.96.7.1"],
  ports: [port(80, { nodePort: 30_000 })],
  endpoints: [at("10.0.0.7", true)],
});

// Invariant 1: rules are a pure function of the view.
test("the order of puts does not change the chains", () => {
  const states: readonly (readonly ServiceView[])[] = [[], [api], [far, web()], [web("10.0.1.1"), api, far]];
  for (const from of states) {
    for (const to of states) {
      const way = newChains();
      for (const item of from) put(way, item);
      way.takeTouched();
      for (const item of from) if (!to.includes(item)) way.put(serviceKey(item.service), undefined);
      for (const item of to.toReversed()) put(way, item);
      way.takeTouched();
      const direct = newChains();
      for (const item of to) put(direct, item);
      direct.takeTouched();
      expect(sorted(way.bodies)).toEqual(sorted(direct.bodies));
    }
  }
});

function sorted(bodies: ReadonlyMap<ChainId, ChainBody>): readonly (readonly [string, string])[] {
  return [...bodies].sort(([a], [b]) => (a < b ? -1 : 1));
}
