import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { expect, test, vi } from "vitest";
import { key, type RunningService, until } from "../testing/running-service.ts";
import { closeAll, connectToAll, useWorkers } from "../testing/use-workers.ts";
import { serviceCountsOf } from "../traffic/service-counts.ts";

vi.setConfig({ testTimeout: 120_000 });

// Workers (`--workers 2`): two processes beside this one, which decides about every connection and counts it.
const { echo, folder, serve } = useWorkers();

const traffic = (service: RunningService) => service.runtime.table.of("default/web");

test("connections spread over all processes, and metrics, reports and access log have them all", async () => {
  const accessLog = join(folder(), "access.log");
  const endpoint = await echo();
  const service = await serve({ endpoints: [endpoint.at] }, { accessLog });
  const clients = await connectToAll(service);
  const addresses = clients.map(({ localPort }) => `127.0.0.1:${localPort}`);
  await closeAll(service, clients);
  const count = clients.length;
  expect(service.ends()).toEqual({ closed: count });
  const reported = { connections: count, bytesFromClients: 5 * count, bytesToClients: 5 * count };
  expect(serviceCountsOf(service.runtime.table)).toMatchObject([[key, reported]]);
  const metrics = await service.metrics.metrics();
  for (const line of [
    `kpng_userspace_connections_total{service="${key}"} ${count}`,
    `kpng_userspace_connections_ended_total{service="${key}",end="closed"} ${count}`,
    `kpng_userspace_received_bytes_total{service="${key}"} ${5 * count}`,
    `kpng_userspace_sent_bytes_total{service="${key}"} ${5 * count}`,
    "kpng_userspace_workers 2",
    "kpng_userspace_worker_exits_total 0",
  ]) {
    expect(metrics.split("\n")).toContain(line);
  }
  const lines = () => readFileSync(accessLog, "utf8").trim().split("\n");
  await until("the access log", () => lines().length === count);
  const records = lines().map((line) => JSON.parse(line));
  expect(new Set(records.map(({ client }) => client))).toEqual(new Set(addresses));
  const { address, port } = endpoint.at;
  const same = { service: key, protocol: "TCP", endpoint: `${address}:${port}`, end: "closed" };
  for (const record of records) expect(record).toMatchObject({ ...same, bytesFromClient: 5, bytesToClient: 5 });
});

test("bytes of open connections are counted each second", async () => {
  const endpoint = await echo();
  const service = await serve({ endpoints: [endpoint.at] });
  const { length } = await connectToAll(service);
  await until("the report", () => traffic(service).bytesToClients === 5 * length);
});

test("a client with affinity stays at its endpoint, whichever process accepts", async () => {
  const endpoints = [await echo(), await echo(), await echo()];
  const service = await serve({ endpoints: endpoints.map(({ at }) => at), affinitySeconds: 60 });
  const clients = await connectToAll(service);
  expect(endpoints.map(({ sockets }) => sockets.size).toSorted((a, b) => b - a)).toEqual([clients.length, 0, 0]);
});

test("least connections are balanced over all processes", async () => {
  const endpoints = [await echo(), await echo(), await echo()];
  const service = await serve({ endpoints: endpoints.map(({ at }) => at) }, { algorithm: "least-connections" });
  const clients = await connectToAll(service);
  const third = clients.length / 3;
  expect(endpoints.map(({ sockets }) => sockets.size)).toEqual([third, third, third]);
});

test("the limit of connections is that of all processes", async () => {
  const endpoint = await echo();
  const service = await serve({ endpoints: [endpoint.at] });
  await closeAll(service, await connectToAll(service));
  service.runtime.relay.limit.limits = { total: 20, perService: 20 };
  const clients = Array.from({ length: 100 }, () => connect(service.port, "127.0.0.1").on("error", () => undefined));
  await until("80 resets", () => clients.filter(({ destroyed }) => destroyed).length === 80);
  await until("20 connections", () => endpoint.sockets.size === 20);
  expect(service.ends().limit).toBe(80);
});

test("a client that the policy refuses is reset, whichever process accepts, and is counted", async () => {
  const endpoint = await echo();
  const service = await serve({ endpoints: [endpoint.at] });
  await closeAll(service, await connectToAll(service));
  const before = service.ends().closed ?? 0;
  const balance = { kind: "balance", set: "cluster", isMasqueraded: false } as const;
  const routes = { pod: balance, node: { kind: "drop" }, outside: { kind: "drop" } } as const;
  await service.apply({ endpoints: [endpoint.at], routes });
  const clients = Array.from({ length: 60 }, () => connect(service.port, "127.0.0.1").on("error", () => undefined));
  await until("all are reset", () => clients.every(({ destroyed }) => destroyed));
  expect(service.ends()).toEqual({ closed: before, policy: 60 });
});

test("an endpoint that refuses is followed by the next one, whichever process connects", async () => {
  const endpoint = await echo();
  const service = await serve({ endpoints: [endpoint.at, { address: "127.0.0.1", port: 1 }] });
  const { length } = await connectToAll(service);
  expect(traffic(service).retries).toBeGreaterThanOrEqual(Math.floor(length / 2) - 1);
});
