import { connect } from "node:net";
import type { ServiceKey } from "@kpng/model/service.ts";
import type { Frontend } from "@kpng/service-plan/service-plan.ts";
import { expect, test } from "vitest";
import type { Entry } from "../entry/entry.ts";
import { familyPlan, RunningService, readAll, servicePlan, TestEndpoint } from "../testing/running-service.ts";

const stages = { committing: () => undefined };
const [first, second] = ["127.0.0.2", "127.0.0.3"];
/** Not one that the kernel gives to other tests. */
const port = 31_000 + (process.pid % 1_500);

/** Listens as `AddressEntry` does, at addresses that this machine has anyway. External IPs are served if `isServed`. */
function entryAt(isServed = true, onQuestion: () => void = () => undefined): Entry {
  const addressesOf = ({ address, kind }: Frontend): readonly string[] => {
    if (address === undefined) return [first, second];
    return kind === "externalIP" && !isServed ? [] : [address];
  };
  return {
    ...{ kind: "address", family: "v4" },
    useNode: () => false,
    prepare: async () => undefined,
    placesOf: ({ frontend }) => {
      onQuestion();
      return addressesOf(frontend).map((address) => ({ address, ports: [frontend.port] }));
    },
    publish: async () => undefined,
    captures: () => false,
    release: async () => undefined,
    repair: async () => [],
    close: async () => undefined,
  };
}

/** Plan of a Service with an endpoint, or without, at a node port or an external IP. */
function plan(
  key: ServiceKey,
  endpoint: TestEndpoint | undefined,
  place: Pick<Frontend, "kind" | "address"> & Partial<Frontend>,
) {
  const service = servicePlan({ endpoints: endpoint === undefined ? [] : [endpoint.at] });
  const ports = service.ports.map((one) => ({
    ...{ ...one, name: `${key}:p` },
    frontends: one.frontends.map((frontend) => ({ ...frontend, port, ...place })),
  }));
  return [key, { ...service, key, ports }] as const;
}

const ask = (host: string): Promise<string> =>
  readAll(connect({ host, port })).catch(({ code }: NodeJS.ErrnoException) => code ?? "");

test.each(["a/ip", "z/ip"] as const)(
  "at an address of the node, Service %s with that external IP goes before the node port b/web, and leaves it again",
  async (key) => {
    await using web = await TestEndpoint.open((socket) => socket.end("web"));
    await using ip = await TestEndpoint.open((socket) => socket.end("ip"));
    await using running = new RunningService({}, entryAt());
    const nodePort = plan("b/web", web, { kind: "nodePort", address: undefined });
    const external = (endpoint: TestEndpoint | undefined) =>
      plan(key, endpoint, { kind: "externalIP", address: first });
    const answers: string[][] = [];
    const clashes: unknown[] = [];
    for (const plans of [[nodePort], [nodePort, external(ip)], [nodePort, external(undefined)], [nodePort]]) {
      await running.ruleSet.sync(familyPlan(new Map(plans)), new Set([answers.length === 0 ? "b/web" : key]), stages);
      expect(await running.ruleSet.repair()).toMatchObject({ mode: "none" });
      answers.push([await ask(first), await ask(second)]);
      clashes.push(running.ruleSet.clashes);
    }
    expect(answers).toEqual([
      ["web", "web"],
      ["ip", "web"],
      ["ECONNREFUSED", "web"],
      ["web", "web"],
    ]);
    const clash = { frontend: `${first}:${port}/TCP`, served: key, shadowed: "b/web" };
    expect(clashes).toEqual([[], [clash], [clash], []]);
    expect(running.log.lines).toEqual([]);
  },
);

test("a node port answers also at an external IP that is not served", async () => {
  await using web = await TestEndpoint.open((socket) => socket.end("web"));
  await using running = new RunningService({}, entryAt(false));
  const plans = [
    plan("b/web", web, { kind: "nodePort", address: undefined }),
    plan("a/ip", web, { kind: "externalIP", address: first }),
  ];
  await running.ruleSet.sync(familyPlan(new Map(plans)), "all", stages);
  expect([await ask(first), running.ruleSet.clashes]).toEqual(["web", []]);
});

test("clashes are found without asking for the places of each node port", async () => {
  await using web = await TestEndpoint.open((socket) => socket.end("web"));
  let questions = 0;
  const entry = entryAt(true, () => questions++);
  await using running = new RunningService({}, entry);
  const nodePorts = Array.from({ length: 20 }, (_, at) =>
    plan(`b/web${at}`, web, { kind: "nodePort", address: undefined, port: port + 1 + at }),
  );
  const external = plan("a/ip", web, { kind: "externalIP", address: second, port: port + 20 });
  await running.ruleSet.sync(familyPlan(new Map([...nodePorts, external])), "all", stages);
  questions = 0;
  const clash = { frontend: `${second}:${port + 20}/TCP`, served: "a/ip", shadowed: "b/web19" };
  expect(running.ruleSet.clashes).toEqual([clash]);
  expect(questions).toBeLessThan(nodePorts.length);
});
