import type { ServiceKey } from "@kpng/model/service.ts";
import { endpoint, port, type ServiceParts, service } from "@kpng/model/testing/views.ts";
import { makePick, makeRandom } from "@kpng/process/testing/random.ts";
import { expect, test } from "vitest";
import { FrontendClaims } from "./frontend-claims.ts";
import { planService } from "./plan-service.ts";
import type { ServicePlan } from "./service-plan.ts";
import { nodePlan } from "./testing/node-plans.ts";

const endpoints = [endpoint("10.0.0.1", { ports: [{ name: "", port: 8080 }] })];
const plan = (key: ServiceKey, parts: ServiceParts = { endpoints }): ServicePlan =>
  planService(service(key, parts), nodePlan());
const shared = "10.96.0.10:80/TCP";

test("the Service that comes first by namespace and name among those with endpoints is served", () => {
  const claims = new FrontendClaims();
  expect([...claims.put(plan("b/web"))]).toEqual([]);
  expect([...claims.put(plan("c/web"))]).toEqual([]);
  expect([...claims.put(plan("a/empty", {}))]).toEqual([]);
  expect(claims.ownerOf(shared)).toBe("b/web");
  expect([...claims.put(plan("a/web"))]).toEqual([shared]);
  expect(claims.ownerOf(shared)).toBe("a/web");
});

test("a clash is listed for each Service that has endpoints and gets no packets", () => {
  const claims = new FrontendClaims();
  for (const key of ["c/web", "b/web", "d/web"] as const) claims.put(plan(key));
  claims.put(plan("a/empty", {}));
  expect(claims.clashes).toEqual([
    { frontend: shared, served: "b/web", shadowed: "c/web" },
    { frontend: shared, served: "b/web", shadowed: "d/web" },
  ]);
});

test("a Service that loses its endpoints or is deleted leaves the frontend to the next one", () => {
  const claims = new FrontendClaims();
  for (const key of ["a/web", "b/web", "c/web"] as const) claims.put(plan(key));
  expect([...claims.put(plan("a/web", {}))]).toEqual([shared]);
  expect(claims.ownerOf(shared)).toBe("b/web");
  expect([...claims.delete("b/web")]).toEqual([shared]);
  expect(claims.ownerOf(shared)).toBe("c/web");
  claims.delete("c/web");
  expect(claims.ownerOf(shared)).toBe("a/web");
  claims.delete("a/web");
  expect(claims.ownerOf(shared)).toBeUndefined();
  expect(claims.clashes).toEqual([]);
});

test("node ports and protocols are told apart", () => {
  const claims = new FrontendClaims();
  const ports = [port(80, { nodePort: 30_080 }), port(80, { name: "dns", protocol: "UDP" })];
  claims.put(plan("a/web", { ports, endpoints }));
  expect(["node port 30080/TCP", shared, "10.96.0.10:80/UDP"].map((id) => claims.ownerOf(id))).toEqual(
    Array(3).fill("a/web"),
  );
  expect(["node port 30080/UDP", "10.96.0.11:80/TCP"].map((id) => claims.ownerOf(id))).toEqual([undefined, undefined]);
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
      const next = plan(key, { ips: [pick(...ips)], endpoints: random() < 0.7 ? endpoints : [] });
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
