import { expect, test } from "vitest";
import { limitsFor } from "./traffic-limits.ts";

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
