import { expect, test } from "vitest";
import { until } from "../../../../test/cluster/until.ts";
import { RunningService, readAll, TestEndpoint } from "../testing/running-service.ts";
import { limitsFor, TrafficLimit, TrafficTable } from "./service-traffic.ts";

const mib = 1_048_576;

test.each([
  {
    name: "many descriptors and much memory",
    openFiles: 1_048_576,
    memory: 65_536,
    connections: 100_000,
    flows: 10_000,
  },
  { name: "a container with 512 MiB", openFiles: 1_048_576, memory: 512, connections: 7_722, flows: 7_722 },
  { name: "few descriptors", openFiles: 1_024, memory: 65_536, connections: 288, flows: 192 },
  { name: "no descriptors beside listeners, and little memory", openFiles: -5, memory: 100, connections: 8, flows: 8 },
])("default limits fit $name", ({ openFiles, memory, connections, flows }) => {
  const limits = limitsFor({ openFiles, memoryBytes: memory * mib }, 0);
  expect([limits.connections.total, limits.flows.total]).toEqual([connections, flows]);
  expect(limits.connections.perService).toBe(Math.ceil(connections / 2));
});

test("a given limit of connections takes precedence", () => {
  const { connections } = limitsFor({ openFiles: 100, memoryBytes: 1 }, 20_000);
  expect(connections).toEqual({ total: 20_000, perService: 10_000 });
});

test("a client takes half of a Service's places at most, and others take the rest", () => {
  const limit = new TrafficLimit({ total: 100, perService: 10 });
  const web = new TrafficTable().of("ns/web");
  const taken = (client: string): number => {
    let count = 0;
    while (limit.tryTake(web, client)) count++;
    return count;
  };
  expect([taken("10.1.0.1"), taken("10.1.0.2"), taken("10.1.0.3")]).toEqual([5, 5, 0]);
  limit.release(web, "10.1.0.1");
  expect([taken("10.1.0.3"), taken("10.1.0.1"), limit.open, web.open]).toEqual([1, 0, 10, 10]);
});

test("the metrics have the connections, bytes, retries, ends and limits of a Service", async () => {
  await using endpoint = await TestEndpoint.open((socket) => {
    socket.on("end", () => socket.end("an answer"));
    socket.resume();
  });
  const refusing = { address: "127.0.0.1", port: 1 };
  await using service = await RunningService.open({ endpoints: [refusing, endpoint.at] });
  service.runtime.relay.limit.limits = { total: 20, perService: 4 };
  service.runtime.udp.limit.limits = { total: 30, perService: 15 };
  const ask = async (): Promise<string> => {
    const client = await service.connect();
    client.end("question");
    return readAll(client);
  };
  for (let count = 0; count < 3; count++) expect(await ask()).toBe("an answer");
  await until("they have ended", () => service.ends().closed === 3);
  const openClients = [await service.connect(), await service.connect()];
  await until("two are open", () => endpoint.sockets.size === 2);
  await expect(service.connect().then(readAll)).rejects.toMatchObject({ code: "ECONNRESET" });
  const { retries } = service.runtime.table.of("default/web");
  // Every connection whose turn was the endpoint that refuses.
  expect(retries).toBeGreaterThanOrEqual(2);
  // Counters that are collected from elsewhere must not add up from one scrape to the next.
  await service.metrics.metrics();
  const text = await service.metrics.metrics();
  const values = Object.fromEntries(
    text
      .split("\n")
      .filter((line) => line.startsWith("kpng_"))
      .map((line) => [line.slice(0, line.lastIndexOf(" ")), Number(line.slice(line.lastIndexOf(" ")))]),
  );
  const of = (name: string, labels = ""): string => `kpng_userspace_${name}{service="default/web"${labels}}`;
  expect(values).toEqual({
    [of("connections_total")]: 6,
    [of("connect_retries_total")]: retries,
    [of("bytes_total", ',direction="received"')]: 24,
    [of("bytes_total", ',direction="sent"')]: 27,
    [of("connections_ended_total", ',end="closed"')]: 3,
    [of("connections_ended_total", ',end="limit"')]: 1,
    [of("service_connections")]: 2,
    'kpng_userspace_open{kind="connections"}': 2,
    'kpng_userspace_open{kind="flows"}': 0,
    'kpng_userspace_open_limit{kind="connections"}': 20,
    'kpng_userspace_open_limit{kind="flows"}': 30,
    kpng_userspace_closed_frontends: 0,
  });
  for (const client of openClients) client.destroy();
  await until("the gauges go back", () => service.runtime.relay.limit.open === 0);
  expect(await service.metrics.metrics()).toContain('kpng_userspace_open{kind="connections"} 0');
});
