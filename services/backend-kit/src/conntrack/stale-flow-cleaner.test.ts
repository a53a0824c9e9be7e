import { type Family, families } from "@kpng/model/address.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { endpoint, port, service, view } from "@kpng/model/testing/views.ts";
import { Health } from "@kpng/process/health/health.ts";
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
function play(table: string[], ofNode: readonly Family[] = families) {
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
  const cleaner = new StaleFlowCleaner({
    log,
    metrics,
    tool,
    health: new Health(),
    errorDelayMs: 10,
    families: ofNode,
  });
  const clean = (services: readonly (typeof dns)[], changed: "all" | readonly ServiceKey[]) => {
    const request = { view: view(services), changed: changed === "all" ? changed : new Set(changed) } as const;
    return cleaner.search({ ...request, isNodePortAddress: () => false, families: ofNode }, never);
  };
  return { passes, lines, metrics, clean, cleaner, tool, fail: (error?: Error) => (failure = error) };
}

test("the table is read only after a change of a Service with a UDP port", async () => {
  const { passes, clean } = play([]);
  await clean([web], "all");
  await clean([web, dns], ["a/dns"]);
  await clean([web, dns], ["a/web"]);
  expect(passes).toEqual(["v4"]);
});

test("a node without IPv6 does not wait to search the flows of IPv6", async () => {
  const { clean, passes } = play([], ["v4"]);
  const dual = { ...dns, ips: ["10.96.0.10", "fd00::10"] };
  await clean([dual], "all");
  await clean([dual], []);
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
  await clean([dns], "all");
  expect(table).toHaveLength(1);
  await clean(services, ["a/dns"]);
  expect(table).toEqual([]);
});

test("a missing program is logged once, counted, and the flows are deleted when it is installed", async () => {
  const table = ["10.1.0.1"];
  const { clean, fail, lines, metrics } = play(table);
  await clean([dns], "all");
  fail(new BackendError("CONNTRACK_FAILED", "there is none"));
  for (let sync = 0; sync < 3; sync++) expect(await clean([], ["a/dns"])).toBe(false);
  expect(lines.filter((line) => line.level === "error")).toMatchObject([
    { msg: "stale udp flows not deleted: trying again" },
  ]);
  expect(await metrics.metrics()).toContain("kpng_backend_conntrack_failures_total 3\n");
  fail();
  expect(await clean([], [])).toBe(true);
  expect(await metrics.metrics()).toContain('kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family="IPv4"} 1');
  const searches = /kubeproxy_conntrack_reconciler_sync_duration_seconds_count\{ip_family="IPv4"\} (\d+)/;
  expect(searches.exec(await metrics.metrics())?.[1]).toBe("2");
});

test("flows whose deletion failed are deleted by the next search", async () => {
  const table = ["10.1.0.1", "10.1.0.2"];
  const { clean, tool } = play(table);
  await clean([service("a/dns", { ports: udp, endpoints: table.map((address) => endpoint(address)) })], "all");
  const { deleteUdp } = tool;
  tool.deleteUdp = async (groups, signal) => {
    await deleteUdp(groups.slice(0, 1), signal);
    throw new Error("the kernel does not answer");
  };
  expect(await clean([], ["a/dns"])).toBe(false);
  expect(table).toHaveLength(1);
  tool.deleteUdp = deleteUdp;
  await clean([], []);
  expect(table).toEqual([]);
});

test("flows that the newest view needs again are kept", async () => {
  const table = ["10.1.0.1", "10.1.0.2"];
  const { clean, cleaner } = play(table);
  cleaner.expect(view([dns]));
  await clean([service("a/dns", { ports: udp })], "all");
  expect(table).toEqual(["10.1.0.1"]);
});

test("a Service whose external IP is another one's cluster IP does not keep UDP flows that it got there before", async () => {
  const table = ["10.1.0.66"];
  const { clean } = play(table);
  const rival = service("evil/dns", {
    createdSeconds: 1,
    ips: ["10.96.0.99"],
    externalIPs: ["10.96.0.10"],
    ports: udp,
    endpoints: [endpoint("10.1.0.66")],
  });
  await clean([rival], "all");
  expect(table).toHaveLength(1);
  await clean([rival, dns], ["a/dns"]);
  expect(table).toEqual([]);
});
