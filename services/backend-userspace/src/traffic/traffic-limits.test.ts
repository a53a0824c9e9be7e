import { expect, test } from "vitest";
import { TrafficTable } from "./service-traffic.ts";
import { limitsFor, TrafficLimit } from "./traffic-limits.ts";

const mib = 1_048_576;
const none = { connections: 0, flows: 0, perService: 0 };

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
  const limits = limitsFor({ openFiles, memoryBytes: memory * mib }, none);
  expect([limits.connections.total, limits.flows.total]).toEqual([connections, flows]);
  expect(limits.connections.perService).toBe(Math.ceil(connections / 2));
});

test("given limits take precedence", () => {
  const given = { connections: 20_000, flows: 3, perService: 50 };
  expect(limitsFor({ openFiles: 100, memoryBytes: 1 }, given)).toEqual({
    connections: { total: 20_000, perService: 50 },
    flows: { total: 3, perService: 3 },
  });
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
