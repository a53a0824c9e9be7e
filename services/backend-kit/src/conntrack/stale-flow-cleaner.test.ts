import { endpoint, port, service, view } from "@kpng/model/testing/views.ts";
import { Registry } from "prom-client";
import { expect, test } from "vitest";
import { createReadableLog } from "../testing/steps.ts";
import { BackendError } from "../types/backend-error.ts";
import { StaleFlowCleaner } from "./stale-flow-cleaner.ts";
import type { ConntrackTool, UdpFlow } from "./udp-flows.ts";

const udp = [port(53, { protocol: "UDP" })];
const dns = service("a/dns", { ports: udp, endpoints: [endpoint("10.1.0.1")] });
const web = service("a/web", { ips: ["10.96.0.80"] });
const never = new AbortController().signal;

/** A table of flows to the cluster IP, by reply source; counts the passes over it. */
function play(table: string[]) {
  const passes: string[] = [];
  let failure: Error | undefined;
  const tool: { -readonly [Name in keyof ConntrackTool]: ConntrackTool[Name] } = {
    visitUdp: async (family, visit) => {
      passes.push(family);
      if (failure !== undefined) throw failure;
      for (const replySource of family === "v4" ? table : []) {
        visit({ family, destination: "10.96.0.10", destinationPort: 53, replySource, replySourcePort: 53 });
      }
    },
    deleteUdp: async (groups: readonly UdpFlow[]) => {
      const before = table.length;
      const isDeleted = (source: string): boolean => groups.some((group) => group.replySource === source);
      table.splice(0, before, ...table.filter((source) => !isDeleted(source)));
      return before - table.length;
    },
  };
  const { log, lines } = createReadableLog();
  const metrics = new Registry();
  const cleaner = new StaleFlowCleaner({ log, metrics, tool });
  const clean = (services: readonly (typeof dns)[], changed: "all" | readonly `${string}/${string}`[]) =>
    cleaner.clean({ view: view(services), changed, isNodePortAddress: () => false }, never);
  return { passes, lines, metrics, clean, cleaner, tool, fail: (error?: Error) => (failure = error) };
}

test("the table is read only after a change of a Service with a UDP port", async () => {
  const { passes, clean } = play([]);
  expect(await clean([web], "all")).toEqual({ kind: "not-needed" });
  await clean([web, dns], ["a/dns"]);
  expect(await clean([web, dns], ["a/web"])).toEqual({ kind: "not-needed" });
  expect(passes).toEqual(["v4"]);
});

test.each([
  { name: "loses its last endpoint", services: [service("a/dns", { ports: udp })] },
  { name: "is deleted", services: [] },
  { name: "loses its UDP port", services: [service("a/dns")] },
  { name: "gets another cluster IP", services: [service("a/dns", { ports: udp, ips: ["10.96.0.99"] })] },
])("the flows of a Service that $name are deleted", async ({ services }) => {
  const table = ["10.1.0.1"];
  const { clean } = play(table);
  expect(await clean([dns], "all")).toEqual({ kind: "cleaned", deletedCount: 0 });
  expect(await clean(services, ["a/dns"])).toEqual({ kind: "cleaned", deletedCount: 1 });
  expect(table).toEqual([]);
});

test("flows of a Service that was deleted while the program did not run are deleted", async () => {
  const table = ["10.1.0.1"];
  const { clean, cleaner } = play(table);
  cleaner.seed(view([dns]));
  await clean([], "all");
  expect(table).toEqual([]);
});

test("a missing program is logged once, counted, and the flows are deleted when it is installed", async () => {
  const table = ["10.1.0.1"];
  const { clean, fail, lines, metrics } = play(table);
  await clean([dns], "all");
  fail(new BackendError("CONNTRACK_MISSING", "there is none"));
  for (let sync = 0; sync < 3; sync++) expect((await clean([], ["a/dns"])).kind).toBe("failed");
  expect(lines.filter((line) => line.level === "error")).toMatchObject([
    { msg: "stale udp flows not deleted: trying again" },
  ]);
  expect(await metrics.metrics()).toContain("kpng_backend_conntrack_failures_total 3\n");
  expect(await metrics.metrics()).toContain("kpng_backend_conntrack_working 0\n");
  fail();
  expect(await clean([], [])).toEqual({ kind: "cleaned", deletedCount: 1 });
  expect(await metrics.metrics()).toContain('kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family="IPv4"} 1');
});

test("flows that were deleted before a deletion failed are counted", async () => {
  const table = Array.from({ length: 120 }, (_, at) => `10.1.0.${at + 1}`);
  const { clean, cleaner, tool, metrics } = play(table);
  cleaner.seed(view([dns]));
  const deleteUdp = tool.deleteUdp;
  tool.deleteUdp = async (groups, signal) => {
    if (table.length < 120) throw new Error("the kernel does not answer");
    return await deleteUdp(groups, signal);
  };
  expect((await clean([], "all")).kind).toBe("failed");
  expect(await metrics.metrics()).toContain(
    'kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family="IPv4"} 50\n',
  );
});

test("flows that the newest view needs again are kept, also if it arrives between two deletions", async () => {
  const sources = Array.from({ length: 120 }, (_, at) => `10.1.0.${at + 1}`);
  const all = service("a/dns", { ports: udp, endpoints: sources.map((address) => endpoint(address)) });
  const none = view([service("a/dns", { ports: udp })]);
  const table = [...sources];
  const { cleaner, tool } = play(table);
  let newest = none;
  const deleteUdp = tool.deleteUdp;
  tool.deleteUdp = async (groups, signal) => {
    const count = await deleteUdp(groups, signal);
    newest = view([all]);
    return count;
  };
  await cleaner.clean({ view: none, changed: "all", isNodePortAddress: () => false, newest: () => newest }, never);
  expect(table).toEqual(sources.slice(50));
});

test("a Service whose external IP is another one's cluster IP does not keep UDP flows that it got there before", async () => {
  const table = ["10.1.0.66"];
  const { clean } = play(table);
  const rival = service("evil/dns", {
    ...{ createdSeconds: 1, ips: ["10.96.0.99"], externalIPs: ["10.96.0.10"] },
    ...{ ports: udp, endpoints: [endpoint("10.1.0.66")] },
  });
  expect(await clean([rival], "all")).toEqual({ kind: "cleaned", deletedCount: 0 });
  expect(await clean([rival, dns], ["a/dns"])).toEqual({ kind: "cleaned", deletedCount: 1 });
});
