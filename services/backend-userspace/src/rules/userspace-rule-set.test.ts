import { once } from "node:events";
import { createServer } from "node:net";
import type { ServiceKey } from "@kpng/model/service.ts";
import { useScripts } from "@kpng/process/testing/use-scripts.ts";
import type { Route, ServicePlan } from "@kpng/service-plan/service-plan.ts";
import { expect, test } from "vitest";
import { localPortRange, MapEntry } from "../entry/entry.ts";
import { RedirectEntry } from "../entry/redirect-entry.ts";
import { familyPlan, key, RunningService, readAll, servicePlan, TestEndpoint } from "../testing/running-service.ts";

const stages = { committing: () => undefined };

/** An entry with only these ports. */
function entryAt(first: number, last: number, lines: string[] = []): MapEntry {
  const print = (line: string): void => void lines.push(line.trim());
  return new MapEntry({ family: "v4", address: "127.0.0.1", ports: { first, last }, print });
}

/** A server of "another program". Its port is not one that the kernel gives to other tests, nor is the one after it. */
async function otherProgram() {
  for (let port = 30_000 + (process.pid % 1_000) * 2; port < 32_700; port += 2) {
    const server = createServer().listen(port, "127.0.0.1");
    const isOpen = await once(server, "listening").then(
      () => true,
      () => false,
    );
    const closeServer = () => server[Symbol.asyncDispose]();
    if (isOpen) return { closeServer, port };
  }
  throw new Error("no free port");
}

test("a sync fails while nothing can listen, and the next one succeeds when the port is free", async () => {
  await using endpoint = await TestEndpoint.open((socket) => socket.end("hello"));
  const { closeServer, port } = await otherProgram();
  await using running = new RunningService({}, entryAt(port, port));
  const applied = running.apply({ endpoints: [endpoint.at] });
  await expect(applied).rejects.toMatchObject({ code: "NOTHING_LISTENS" });
  await expect(applied).rejects.toThrow(`listen EADDRINUSE: address already in use 127.0.0.1:${port}`);
  expect(running.ruleSet.closedCount).toBe(1);
  await closeServer();
  await running.apply({ endpoints: [endpoint.at] });
  expect(running.ruleSet.closedCount).toBe(0);
  expect(await readAll(await running.connect())).toBe("hello");
});

test("a sync fails while the node has no address to listen at, unless it has one of the other family", async () => {
  useScripts({ nft: "exit 0" });
  const entry = new RedirectEntry({ family: "v4", table: "kpng-test", ports: localPortRange });
  let v6 = ["::1", "fe80::1"];
  await using running = new RunningService({}, entry, () => ({ v4: [], v6 }));
  const service = { endpoints: [{ address: "10.0.0.1", port: 80 }] };
  await expect(running.apply(service)).rejects.toThrow(/NOTHING_LISTENS.*the node has no address to listen at/);
  v6 = ["2001:db8::1"];
  await running.apply(service);
  expect(running.ruleSet.closedCount).toBe(1);
});

test("a Service cannot take the local ports of others", async () => {
  await using endpoint = await TestEndpoint.open((socket) => socket.end("hello"));
  await using running = new RunningService({ maxListenersPerService: 3 }, entryAt(31_000, 31_007));
  const { ports } = servicePlan({ endpoints: [endpoint.at] });
  const [port] = ports;
  if (port === undefined) throw new Error("no port");
  const at = (number: number) => ({
    ...port,
    name: `${key}:p${number}`,
    frontends: port.frontends.map((one) => ({ ...one, port: number })),
  });
  const greedy: ServicePlan = {
    ...servicePlan({ endpoints: [] }),
    ports: Array.from({ length: 20 }, (_, index) => at(1_000 + index)),
  };
  const modest: ServicePlan = { ...greedy, key: "ns/modest", ports: [at(80)] };
  const plan = familyPlan(
    new Map<ServiceKey, ServicePlan>([
      [greedy.key, greedy],
      [modest.key, modest],
    ]),
  );
  await running.ruleSet.sync(plan, "all", stages);
  expect(running.ruleSet.socketCount).toBe(4);
  expect(running.ruleSet.installed.lines().filter((line) => line.includes(":80 "))).toHaveLength(1);
  expect(running.log.lines.map(({ reason }) => reason)).toContainEqual(
    expect.stringContaining("a Service has at most 3 local ports"),
  );
});

test("a frontend whose port is taken is named, does not affect others, and is opened by a later check", async () => {
  await using endpoint = await TestEndpoint.open((socket) => socket.end("hello"));
  const { closeServer, port } = await otherProgram();
  // Both ports for two frontends, one of which is taken.
  await using running = new RunningService({}, entryAt(port, port + 1));
  const [plan] = servicePlan({ endpoints: [endpoint.at] }).ports;
  if (plan === undefined) throw new Error("no port");
  const second = { ...plan, name: `${key}:b`, frontends: plan.frontends.map((one) => ({ ...one, port: 81 })) };
  const service = { ...servicePlan({ endpoints: [] }), ports: [plan, second] };
  await running.ruleSet.sync(familyPlan(new Map([[key, service]])), "all", stages);
  expect([running.ruleSet.socketCount, running.ruleSet.closedCount]).toEqual([1, 1]);
  expect(running.log.lines).toContainEqual(
    expect.objectContaining({ msg: "frontend not opened: it is tried again with each check" }),
  );
  await closeServer();
  const change = await running.ruleSet.repair();
  expect(change).toMatchObject({ mode: "full", fields: { opened: 1 } });
  expect([running.ruleSet.socketCount, running.ruleSet.closedCount]).toEqual([2, 0]);
  expect(await running.ruleSet.repair()).toMatchObject({ mode: "none" });
});

test("the mapping is printed when it changes, and a Service without endpoints has no listener", async () => {
  await using endpoint = await TestEndpoint.open((socket) => socket.end("hello"));
  const { closeServer, port } = await otherProgram();
  await closeServer();
  const lines: string[] = [];
  await using running = new RunningService({}, entryAt(port, port, lines));
  await running.apply({ endpoints: [endpoint.at] });
  await running.apply({ endpoints: [endpoint.at] });
  await running.apply({ endpoints: [] });
  await expect(running.connect()).rejects.toThrow();
  await running.apply({ endpoints: [endpoint.at] });
  await running.apply(undefined);
  expect(lines).toEqual([
    `default/web TCP 10.96.0.1:80 -> 127.0.0.1:${port}`,
    "default/web TCP 10.96.0.1:80 -> no endpoint",
    `default/web TCP 10.96.0.1:80 -> 127.0.0.1:${port}`,
    "default/web TCP 10.96.0.1:80 -> not served",
  ]);
});

test("a client without an endpoint by the traffic policy is reset", async () => {
  await using endpoint = await TestEndpoint.open((socket) => socket.end("hello"));
  const balance: Route = { kind: "balance", set: "cluster", isMasqueraded: false };
  await using running = await RunningService.open({
    endpoints: [endpoint.at],
    routes: { pod: balance, node: { kind: "drop" }, outside: { kind: "drop" } },
  });
  await expect(running.connect().then(readAll)).rejects.toMatchObject({ code: "ECONNRESET" });
  expect(running.ends()).toEqual({ policy: 1 });
});
