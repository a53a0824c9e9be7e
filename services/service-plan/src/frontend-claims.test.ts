import type { ServiceKey } from "@kpng/model/service.ts";
import { endpoint, port, type ServiceParts, service } from "@kpng/model/testing/views.ts";
import { makePick, makeRandom } from "@kpng/process/random.ts";
import { expect, test } from "vitest";
import { FrontendClaims } from "./frontend-claims.ts";
import { planService } from "./plan-service.ts";
import type { ServicePlan } from "./service-plan.ts";
import { nodePlan } from "./testing/node-plans.ts";

const endpoints = [endpoint("10.0.0.1", { ports: [{ name: "", port: 8080 }] })];
const plan = (key: ServiceKey, parts: ServiceParts = { endpoints }): ServicePlan =>
  planService(service(key, parts), nodePlan());
const shared = "10.96.0.10:80/TCP";

const victim: ServiceParts = { createdSeconds: 2_000, uid: "b", ips: ["10.96.0.1"] };
const claims: readonly { readonly name: string; readonly rival: ServiceParts; readonly victim?: ServiceParts }[] = [
  {
    name: "its load-balancer IP, which is also its external IP, wins over an external IP",
    rival: { externalIPs: ["198.51.100.1"] },
    victim: { loadBalancerIPs: ["198.51.100.1"], externalIPs: ["198.51.100.1"] },
  },
  {
    name: "of two Services of the same second that with the lesser UID wins",
    rival: { externalIPs: ["198.51.100.1"], createdSeconds: 2_000, uid: "c" },
    victim: { externalIPs: ["198.51.100.1"] },
  },
  {
    name: "a Service whose age is known wins over one whose age is unknown",
    rival: { externalIPs: ["198.51.100.1"], createdSeconds: undefined, uid: undefined },
    victim: { externalIPs: ["198.51.100.1"] },
  },
];

test.each(claims)("whatever the rival's name, age, endpoints and order: $name", ({ rival, victim: parts = {} }) => {
  const owned = plan("m/victim", { ...victim, ...parts });
  for (const key of ["a/rival", "z/rival"] as const) {
    for (const pods of [endpoints, []]) {
      const other = plan(key, { createdSeconds: 1_000, uid: "a", ips: ["10.96.0.9"], endpoints: pods, ...rival });
      for (const order of [
        [owned, other],
        [other, owned],
      ]) {
        const claimed = new FrontendClaims();
        for (const each of order) claimed.put(each);
        const disputed = claimed.clashes.map(({ served, shadowed }) => `${served} ${shadowed}`);
        expect(disputed).toEqual([`m/victim ${key}`]);
      }
    }
  }
});

test("without a known age, the Service that comes first by namespace and name is served", () => {
  const claimed = new FrontendClaims();
  expect([...claimed.put(plan("b/web"))]).toEqual([]);
  expect([...claimed.put(plan("c/web"))]).toEqual([]);
  expect([...claimed.put(plan("a/web"))]).toEqual([shared]);
  expect(claimed.ownerOf(shared)).toBe("a/web");
  expect(claimed.clashes).toEqual([
    { frontend: shared, served: "a/web", shadowed: "b/web" },
    { frontend: shared, served: "a/web", shadowed: "c/web" },
  ]);
});

test("a whole address excepts the ports of all Services at it, and its owner is touched when they come or go", () => {
  const claims = new FrontendClaims();
  const at = { externalIPs: ["192.0.2.9"], endpoints };
  const owner = plan("b/all", { ...at, mapIP: true, ips: ["10.96.0.1"], createdSeconds: 1 });
  const wholeId = "192.0.2.9 as a whole";
  const exceptions = () =>
    claims
      .withOwned(owner)
      .whole?.frontends.map(({ address, except }) => [
        address,
        ...except.map(({ protocol, port: number }) => `${number}/${protocol}`),
      ]);
  expect([...claims.put(owner)]).toEqual([]);
  expect(exceptions()).toEqual([
    ["10.96.0.1", "80/TCP"],
    ["192.0.2.9", "80/TCP"],
  ]);
  const other = plan("a/dns", { ...at, ips: ["10.96.0.2"], ports: [port(53, { protocol: "UDP" })], endpoints: [] });
  expect([...claims.put(other)]).toEqual([wholeId]);
  expect(exceptions()?.[1]).toEqual(["192.0.2.9", "53/UDP", "80/TCP"]);
  // Only a claim to the same whole address is a rival's.
  expect(claims.clashes).toEqual([]);
  const rival = plan("a/all", { ...at, mapIP: true, ips: [], ports: [], isHeadless: true, createdSeconds: 2 });
  claims.put(rival);
  expect(claims.clashes).toEqual([{ frontend: wholeId, served: "b/all", shadowed: "a/all" }]);
  expect(claims.withOwned(rival).whole).toBeUndefined();
  expect([...claims.delete("a/dns")]).toEqual([wholeId]);
  expect(exceptions()?.[1]).toEqual(["192.0.2.9", "80/TCP"]);
  expect([...claims.delete("b/all")]).toContain(wholeId);
  expect(claims.withOwned(rival).whole?.frontends).toMatchObject([{ address: "192.0.2.9", except: [] }]);
});

test("the owners depend on the last plans alone, not on their history", () => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  const random = makeRandom(seed);
  const pick = makePick(random);
  const keys: readonly ServiceKey[] = ["a/a", "a/b", "b/a", "b/b"];
  const ips = ["10.96.0.1", "10.96.0.2", "10.96.0.3"];
  const claims = new FrontendClaims();
  const present = new Map<ServiceKey, ServicePlan>();
  for (let step = 0; step < 500; step++) {
    const key = pick(...keys);
    const owners = () => ips.map((ip) => claims.ownerOf(`${ip}:80/TCP`));
    const before = owners();
    let changed: ReadonlySet<string>;
    if (random() < 0.3) {
      changed = claims.delete(key);
      present.delete(key);
    } else {
      const next = plan(key, {
        ips: [pick(...ips)],
        externalIPs: [pick(...ips)],
        createdSeconds: pick(undefined, 1, 2),
        uid: pick("x", "y"),
        endpoints: random() < 0.7 ? endpoints : [],
      });
      changed = claims.put(next);
      present.set(key, next);
    }
    const fresh = new FrontendClaims();
    for (const each of present.values()) fresh.put(each);
    const name = `seed ${seed}, step ${step}`;
    expect(owners(), name).toEqual(ips.map((ip) => fresh.ownerOf(`${ip}:80/TCP`)));
    expect(new Set(claims.clashes), name).toEqual(new Set(fresh.clashes));
    const moved = ips.filter((_, at) => {
      const pair = [before[at], owners()[at]];
      return pair[0] !== pair[1] && pair.some((owner) => owner !== undefined && owner !== key);
    });
    expect([...changed].sort(), name).toEqual(moved.map((ip) => `${ip}:80/TCP`).sort());
  }
});

test("at each cluster IP and port, the one Service to which the API server gave it is served, whatever others claim", () => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  const random = makeRandom(seed);
  const pick = makePick(random);
  const pods = () => (random() < 0.5 ? endpoints : []);
  for (let round = 0; round < 200; round++) {
    const claimed = new FrontendClaims();
    const owners = new Map<string, ServiceKey>();
    for (let step = 0; step < 12; step++) {
      const number = Math.floor(random() * 6);
      const key: ServiceKey = `${pick("a", "b")}/s${number}`;
      const ip = `10.96.0.${key.startsWith("a") ? number : 10 + number}`;
      const foreign = Array.from({ length: 3 }, () => `10.96.0.${Math.floor(random() * 16)}`);
      const next = plan(key, {
        ips: [ip],
        externalIPs: random() < 0.5 ? foreign : [],
        loadBalancerIPs: random() < 0.5 ? foreign.toReversed() : [],
        ipFilters: random() < 0.5 ? [{ sourceRanges: ["192.0.2.0/24"] }] : [],
        ports: [port(80, { nodePort: pick(0, 30_080) })],
        createdSeconds: pick(undefined, 1, 2),
        uid: pick(undefined, "x", "y"),
        endpoints: pods(),
      });
      claimed.put(next);
      owners.set(`${ip}:80/TCP`, key);
      if (random() < 0.2) {
        claimed.delete(key);
        owners.delete(`${ip}:80/TCP`);
      }
    }
    for (const [id, owner] of owners) expect(claimed.ownerOf(id), `seed ${seed}`).toBe(owner);
    for (const { served, shadowed, frontend } of claimed.clashes) {
      expect(owners.get(frontend) ?? served, `seed ${seed}`).toBe(served);
      expect(shadowed, `seed ${seed}`).not.toBe(served);
    }
  }
});
