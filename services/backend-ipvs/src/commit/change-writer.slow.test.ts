import type { EndpointAddress, ServicePlan } from "@kpng/service-plan/service-plan.ts";
import { Registry } from "prom-client";
import { expect, test } from "vitest";
import { RunTool } from "../read/run-tool.ts";
import { frontend, webPlan } from "../testing/plans.ts";
import { openRuleSet, planOfServices, stages } from "../testing/rule-sets.ts";
import { useKernel, useTools } from "../testing/use-tools.ts";
import { observeRefused } from "./ipvs-rule-set.ts";

/** Additions that a call tries one by one, for tests with more of them: each takes a process. */
const mostAlone = 8;

function serviceAt(name: string, address: string, endpoints: readonly string[]): ServicePlan {
  const cluster = endpoints.map((each): EndpointAddress => ({ address: each, port: 8080 }));
  return { ...webPlan([frontend({ address })], { sets: { cluster, local: [] } }), key: `ns/${name}` };
}

test("an address that the kernel refuses keeps no other change from being made", async () => {
  const { readInputs } = useKernel("add ff05::1/");
  const logLines: string[] = [];
  const rules = openRuleSet({ family: "v6", logLines, localAddresses: () => ({ v4: [], v6: [] }) });
  const refused = serviceAt("a", "ff05::1", ["fd01::7"]);
  const first = planOfServices("v6", [refused, serviceAt("b", "fd00::1", ["fd01::7"])]);
  await expect(rules.sync(first, "all", stages)).rejects.toMatchObject({ code: "COMMIT_REJECTED" });
  await rules.sync(first, "all", stages);
  const added = (address: string) => `address add ${address}/128 dev kube-ipvs0 nodad preferred_lft 0`;
  expect(readInputs()).toContain(added("fd00::1"));
  expect(logLines.join()).toContain("address ff05::1");
  const before = readInputs().length;
  const second = planOfServices("v6", [refused, serviceAt("c", "fd00::2", [])]);
  await rules.sync(second, new Set(["ns/a", "ns/c"]), stages);
  expect(readInputs().slice(before)).toContain(added("fd00::2"));
  expect(await rules.repair()).toMatchObject({ mode: "none" });
  expect(logLines).toHaveLength(1);
});

test("each Service that needs a refused address is logged once, also if it comes later or is created again", async () => {
  useKernel("add ff05::1/");
  const logLines: string[] = [];
  const rules = openRuleSet({ family: "v6", logLines, localAddresses: () => ({ v4: [], v6: [] }) });
  const logged = () => logLines.splice(0).map((line): unknown => JSON.parse(line).services);
  const services = (...names: readonly string[]) =>
    planOfServices(
      "v6",
      names.map((name, at) => {
        const plan = webPlan([frontend({ address: "ff05::1", port: 80 + at })]);
        return { ...plan, key: `ns/${name}` };
      }),
    );
  const first = services("a", "b");
  await expect(rules.sync(first, "all", stages)).rejects.toMatchObject({ code: "COMMIT_REJECTED" });
  await rules.sync(first, "all", stages);
  expect(logged()).toEqual([["ns/a", "ns/b"]]);
  await rules.sync(services("a", "b", "c"), new Set(["ns/c"]), stages);
  expect(logged()).toEqual([["ns/c"]]);
  await rules.sync(services("a", "b", "c"), new Set(["ns/c"]), stages);
  expect(logged()).toEqual([]);
  await rules.sync(services(), new Set(["ns/a", "ns/b", "ns/c"]), stages);
  await rules.sync(services("a"), new Set(["ns/a"]), stages);
  expect(logged()).toEqual([["ns/a"]]);
});

/** Syncs a Service with an endpoint that the kernel refuses, until the rest of it is served. */
async function syncWithRefusedEndpoint() {
  useKernel("-r 192.0.2.255:");
  const logLines: string[] = [];
  const rules = openRuleSet({ logLines });
  const plan = planOfServices("v4", [serviceAt("a", "10.96.0.1", ["192.0.2.255", "10.1.1.7"])]);
  await expect(rules.sync(plan, "all", stages)).rejects.toMatchObject({ code: "COMMIT_REJECTED" });
  await rules.sync(plan, "all", stages);
  return { rules, logLines };
}

test("the objects that the kernel refuses are counted, and marked in the list of desired ones, until none needs them", async () => {
  const { rules, logLines } = await syncWithRefusedEndpoint();
  expect(JSON.parse(logLines.at(-1) ?? "")).toMatchObject({ services: ["ns/a"] });
  const registry = new Registry();
  observeRefused(registry, [rules]);
  const metric = 'kpng_ipvs_refused_objects{ip_family="IPv4"}';
  expect(await registry.metrics()).toContain(`${metric} 1`);
  const marked = rules.desired.linesOf?.("ns/a").filter((line) => line.endsWith("# refused by the kernel"));
  expect(marked).toEqual(["real -t 10.96.0.1:80 -r 192.0.2.255:8080 -w 1 # refused by the kernel"]);
  await rules.sync(planOfServices("v4", []), new Set(["ns/a"]), stages);
  expect(await registry.metrics()).toContain(`${metric} 0`);
});

test("a new port is not refused for longer than one sync, however long an endpoint of another Service fails syncs", async () => {
  useKernel("-r 192.0.2.");
  const rules = openRuleSet({ mostAlone });
  const ports = (...all: readonly number[]): ServicePlan => {
    const frontends = all.map((port) => frontend({ address: "10.96.0.1", port }));
    return { ...serviceAt("a", "10.96.0.1", []), ports: webPlan(frontends).ports };
  };
  await rules.sync(planOfServices("v4", [ports(80)]), "all", stages);
  const endpoints = Array.from({ length: 4 * mostAlone }, (_, at) => `192.0.2.${at}`);
  const plan = planOfServices("v4", [ports(80, 81), serviceAt("b", "10.96.0.2", endpoints)]);
  for (let attempt = 1; attempt <= 2; attempt++) {
    await expect(rules.sync(plan, "all", stages)).rejects.toMatchObject({ code: "COMMIT_REJECTED" });
  }
  expect(await new RunTool().read(["ipset", "save"])).not.toContain("add KPNGIPVS-REFUSED 10.96.0.1,tcp:81");
});

test("endpoints that the kernel refuses are left out, also more than are tried at once", async () => {
  const { readInputs } = useKernel("-r 192.0.2.255:");
  const rules = openRuleSet({ mostAlone });
  const many = Array.from({ length: 12 }, (_, at) => serviceAt(`s${at}`, `10.96.0.${at}`, ["192.0.2.255", "10.1.1.7"]));
  const plan = planOfServices("v4", many);
  for (let attempt = 1; attempt <= 2; attempt++) {
    await expect(rules.sync(plan, "all", stages)).rejects.toMatchObject({ code: "COMMIT_REJECTED" });
  }
  await rules.sync(plan, "all", stages);
  const installed = rules.installed.lines();
  expect(installed.filter((line) => line.startsWith("real"))).toHaveLength(12);
  expect(installed.filter((line) => line.startsWith("address"))).toHaveLength(12);
  const before = readInputs().length;
  const { mode } = await rules.sync(plan, new Set(["ns/s1"]), stages);
  expect([mode, ...readInputs().slice(before)]).toEqual(["none", "-a -t 10.96.0.1:80 -r 192.0.2.255:8080 -m -w 1"]);
});

test("a virtual server is never left out: packets would reach the node's own ports", async () => {
  const { readInputs } = useKernel("-A -t 10.96.0.1:80");
  const rules = openRuleSet();
  const plan = planOfServices("v4", [serviceAt("a", "10.96.0.1", ["10.1.1.7"])]);
  for (let attempt = 1; attempt <= 3; attempt++) {
    await expect(rules.sync(plan, "all", stages)).rejects.toMatchObject({ code: "COMMIT_REJECTED" });
  }
  expect(readInputs().filter((line) => line.startsWith("address"))).toEqual([]);
});

test("more addresses than are tried at once are left out, too", async () => {
  useKernel("add ff05::");
  const rules = openRuleSet({ family: "v6", mostAlone, localAddresses: () => ({ v4: [], v6: [] }) });
  const plan = planOfServices(
    "v6",
    Array.from({ length: 15 }, (_, at) => serviceAt(`s${at}`, at < 10 ? `ff05::${at}` : `fd00::${at}`, ["fd01::7"])),
  );
  for (let attempt = 1; attempt <= 2; attempt++) {
    await expect(rules.sync(plan, "all", stages)).rejects.toMatchObject({ code: "COMMIT_REJECTED" });
  }
  await rules.sync(plan, "all", stages);
  expect(rules.installed.lines().filter((line) => line.startsWith("address"))).toHaveLength(5);
});

test("refused endpoints take turns, so that all that the kernel accepts later are added", async () => {
  const { readInputs } = useKernel("-r 192.0.2.");
  const rules = openRuleSet({ mostAlone });
  const endpoints = Array.from({ length: 10 }, (_, at) => `192.0.2.${at}`);
  const plan = planOfServices("v4", [serviceAt("a", "10.96.0.1", ["10.1.1.7", ...endpoints])]);
  for (let attempt = 1; attempt <= 2; attempt++) {
    await expect(rules.sync(plan, "all", stages)).rejects.toMatchObject({ code: "COMMIT_REJECTED" });
  }
  await rules.sync(plan, "all", stages);
  const before = readInputs().length;
  for (let round = 1; round <= 2; round++) await rules.sync(plan, "all", stages);
  const tried = readInputs()
    .slice(before)
    .filter((line) => line.startsWith("-a "));
  expect([tried.length, new Set(tried).size]).toEqual([2 * mostAlone, 10]);
});

test.each([
  {
    tool: "iptables-restore",
    script: "echo 'iptables-restore: Invalid argument' >&2; exit 1",
    says: "iptables-restore",
  },
  {
    tool: "ipvsadm",
    // A virtual server is refused, and its real servers follow.
    script: `[ "$1" = -S ] || ! grep -q -e '^-A' "$INPUT" || { echo "Invalid operation" >&2; exit 0; }
[ "$1" = -S ] || ! grep -q -e '^-a' "$INPUT" || echo "Service not defined" >&2`,
    says: "Invalid operation",
  },
])(
  "a failure of $tool stays the reason in every sync, whatever fails for lack of it",
  async ({ tool, script, says }) => {
    const tools = {
      ip: `case "$*" in *link*) echo "4: kube-ipvs0: <NOARP,UP>" ;; esac`,
      ipset: "exit 0",
      ipvsadm: `[ "$1" = -S ] || echo "Service not defined" >&2`,
      "iptables-save": "exit 0",
      "iptables-restore": "exit 0",
    };
    useTools({ ...tools, [tool]: script });
    const rules = openRuleSet();
    const plan = planOfServices("v4", [serviceAt("a", "10.96.0.1", ["10.1.1.7"])]);
    for (let attempt = 1; attempt <= 3; attempt++) {
      await expect(rules.sync(plan, "all", stages)).rejects.toThrow(says);
    }
  },
);
