import { createReadableLog } from "@kpng/backend-kit/testing/steps.ts";
import type { ServiceView } from "@kpng/model/node-view.ts";
import { serviceKey } from "@kpng/model/service.ts";
import { endpoint, port, type ServiceParts, service, view } from "@kpng/model/testing/views.ts";
import { expect, test } from "vitest";
import { FamilyRules } from "./family-rules.ts";
import { NodeRules } from "./node-rules.ts";
import { readSettings } from "./read-settings.ts";

const nowhere = { read: async () => undefined, restore: async () => undefined };
const ready = { endpoints: [endpoint("10.0.1.1", { ports: [{ name: "", port: 80 }] })] };

/** Rules of both families that stand nowhere, and what is said of them. */
function start() {
  const { log, lines } = createReadableLog();
  const families = (["v4", "v6"] as const).map((family) => ({ family, rules: new FamilyRules(nowhere, log) }));
  const rules = new NodeRules(readSettings({}, ""), families, () => undefined, log);
  const sync = async (...services: readonly ServiceView[]): Promise<readonly unknown[]> => {
    const before = lines.length;
    await rules.sync(view(services), new Set(services.map((one) => serviceKey(one.service))));
    return lines.slice(before).map(({ level, frontend, served, shadowed }) => [level, frontend, served, shadowed]);
  };
  return { sync, rules };
}

const at = (path: string, parts: ServiceParts = {}): ServiceView => service(path, { ...ready, ...parts });

test.each<{ readonly name: string; readonly parts: readonly [ServiceParts, ServiceParts]; readonly frontend: string }>([
  { name: "cluster IP", parts: [{}, {}], frontend: "10.96.0.10:80/TCP" },
  {
    name: "external IP",
    parts: [
      { ips: ["10.96.0.1"], externalIPs: ["192.0.2.1"] },
      { ips: ["10.96.0.2"], loadBalancerIPs: ["192.0.2.1"], ipFilters: [{ sourceRanges: ["10.0.0.0/8"] }] },
    ],
    frontend: "192.0.2.1:80/TCP",
  },
  {
    name: "node port",
    parts: [
      { ips: ["10.96.0.1"], ports: [port(80, { nodePort: 30_080 })] },
      { ips: ["10.96.0.2"], ports: [port(80, { nodePort: 30_080 })] },
    ],
    frontend: "node port 30080/TCP",
  },
])(
  "two Services with the same $name and port are named, once, with the one that is served",
  async ({ parts, frontend }) => {
    const { sync } = start();
    const [first, second] = [at("a/web", parts[0]), at("b/web", parts[1])];
    expect(await sync(second)).toEqual([]);
    expect(await sync(first, second)).toEqual([["error", frontend, "a/web", "b/web"]]);
    expect(await sync(first, second)).toEqual([]);
    expect(await sync(first, second, at("c/other", { ips: ["10.96.0.99"] }))).toEqual([]);
  },
);

test("told again only after it was gone", async () => {
  const { sync, rules } = start();
  expect(await sync(at("a/web"), at("b/web"))).toHaveLength(1);
  await rules.sync(view([at("b/web")]), new Set(["a/web"]));
  expect(await sync(at("a/web"), at("b/web"))).toHaveLength(1);
});

test("another port, protocol or address, and a Service whose place the other may have, are no clash", async () => {
  const { sync } = start();
  const parts = { protocol: "UDP" } as const;
  const udp = { endpoints: [endpoint("10.0.1.1", { ports: [{ name: "", port: 80, ...parts }] })] };
  expect(
    await sync(
      at("a/web"),
      at("b/web", { ports: [port(81, {})] }),
      at("c/web", { ports: [port(80, parts)], ...udp }),
      at("d/web", { ips: ["10.96.0.11"] }),
      at("e/web", { endpoints: [] }),
    ),
  ).toEqual([]);
});
