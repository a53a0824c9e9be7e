import type { EndpointAddress, ServicePlan } from "@kpng/service-plan/service-plan.ts";
import { Registry } from "prom-client";
import { expect, test } from "vitest";
import { frontend, webPlan } from "../testing/plans.ts";
import { openRuleSet, planOfServices, stages } from "../testing/rule-sets.ts";
import { useKernel, useTools } from "../testing/use-tools.ts";
import { observeRefused } from "./ipvs-rule-set.ts";

function serviceAt(name: string, address: string, endpoints: readonly string[]): ServicePlan {
  const cluster = endpoints.map((each): EndpointAddress => ({ address: each, port: 8080 }));
  return { ...webPlan([frontend({ address })], { sets: { cluster, local: [] } }), key: `ns/${name}` };
}

const added = (address: string) => `address add ${address}/128 dev kube-ipvs0 nodad preferred_lft 0`;

test("an address that the kernel refuses is left out and logged once, until no Service needs it", async () => {
  const { readInputs } = useKernel("add ff05::1/");
  const logLines: string[] = [];
  const rules = openRuleSet({ family: "v6", logLines, localAddresses: () => ({ v4: [], v6: [] }) });
  const refused = serviceAt("a", "ff05::1", ["fd01::7"]);
  const first = planOfServices("v6", [refused, serviceAt("b", "fd00::1", ["fd01::7"])]);
  await rules.sync(first, "all", stages);
  expect(readInputs()).toContain(added("fd00::1"));
  expect(readInputs().at(-1)).toBe("del KPNGIPVS-6-ADDRESSES ff05::1");
  const said = { count: 1, objects: ["address ff05::1"], services: ["ns/a"] };
  expect(logLines.splice(0).map((line): unknown => JSON.parse(line))).toEqual([expect.objectContaining(said)]);
  const before = readInputs().length;
  const second = planOfServices("v6", [refused, serviceAt("c", "fd00::2", [])]);
  await rules.sync(second, new Set(["ns/a", "ns/c"]), stages);
  expect(readInputs().slice(before)).toContain(added("fd00::2"));
  expect(readInputs().slice(before).join()).not.toContain("ADDRESSES ff05::1");
  expect(await rules.repair()).toMatchObject({ mode: "none" });
  expect(logLines).toEqual([]);
  await rules.sync(planOfServices("v6", []), new Set(["ns/a"]), stages);
  await rules.sync(first, new Set(["ns/a"]), stages);
  expect(logLines).toHaveLength(1);
});

test("an address that the kernel accepts later is recorded as a service address then", async () => {
  const options = { family: "v6", localAddresses: () => ({ v4: [], v6: [] }) } as const;
  useKernel("add ff05::1/");
  const rules = openRuleSet(options);
  const plan = planOfServices("v6", [serviceAt("a", "ff05::1", ["fd01::7"])]);
  await rules.sync(plan, "all", stages);
  const { readInputs } = useKernel("nothing");
  await rules.sync(plan, new Set(["ns/a"]), stages);
  expect(readInputs().slice(-2)).toEqual([added("ff05::1"), "add KPNGIPVS-6-ADDRESSES ff05::1"]);
  expect(rules.refusedCount).toBe(0);
});

test("endpoints that the kernel refuses are left out, counted, marked, and tried again with their Service", async () => {
  const { readInputs } = useKernel("-r 192.0.2.255:");
  const rules = openRuleSet();
  const many = Array.from({ length: 12 }, (_, at) => serviceAt(`s${at}`, `10.96.0.${at}`, ["192.0.2.255", "10.1.1.7"]));
  const plan = planOfServices("v4", many);
  await rules.sync(plan, "all", stages);
  const installed = rules.installed.lines();
  expect(installed.filter((line) => line.startsWith("real"))).toHaveLength(12);
  expect(installed.filter((line) => line.startsWith("address"))).toHaveLength(12);
  const registry = new Registry();
  observeRefused(registry, [rules]);
  const metric = 'kpng_ipvs_refused_objects{ip_family="IPv4"}';
  expect(await registry.metrics()).toContain(`${metric} 12`);
  const marked = rules.desired.linesOf?.("ns/s1").filter((line) => line.endsWith("# refused by the kernel"));
  expect(marked).toEqual(["real -t 10.96.0.1:80 -r 192.0.2.255:8080 -w 1 # refused by the kernel"]);
  const before = readInputs().length;
  const { mode } = await rules.sync(plan, new Set(["ns/s1"]), stages);
  expect([mode, ...readInputs().slice(before)]).toEqual(["none", "-a -t 10.96.0.1:80 -r 192.0.2.255:8080 -m -w 1"]);
  await rules.sync(planOfServices("v4", many.slice(0, 1)), new Set(many.slice(1).map(({ key }) => key)), stages);
  expect(await registry.metrics()).toContain(`${metric} 1`);
});

test("a refused endpoint does not prevent the deletion of another Service's virtual server", async () => {
  const { readInputs } = useKernel("-r 192.0.2.255:");
  const rules = openRuleSet();
  const [stays, goes] = [serviceAt("a", "10.96.0.1", ["192.0.2.255"]), serviceAt("b", "10.96.0.2", [])];
  await rules.sync(planOfServices("v4", [stays, goes]), "all", stages);
  await rules.sync(planOfServices("v4", [stays]), new Set(["ns/a", "ns/b"]), stages);
  expect(readInputs()).toContain("-D -t 10.96.0.2:80");
});

test("a sync fails if the kernel refuses the deletion of an address", async () => {
  useKernel("address delete fd00::2/");
  const rules = openRuleSet({ family: "v6", localAddresses: () => ({ v4: [], v6: [] }) });
  const [stays, goes] = [serviceAt("a", "fd00::1", ["fd01::7"]), serviceAt("b", "fd00::2", [])];
  await rules.sync(planOfServices("v6", [stays, goes]), "all", stages);
  const removed = rules.sync(planOfServices("v6", [stays]), new Set(["ns/b"]), stages);
  await expect(removed).rejects.toMatchObject({ code: "COMMIT_REJECTED" });
});

test.each([
  { what: "a virtual server, without which packets would reach the node's own ports", refused: "-A -t 10.96.0.1:80" },
  { what: "an endpoint's new weight", refused: "-e -t 10.96.0.1:80 -r 10.1.1.7:8080" },
])("a sync fails if the kernel refuses $what", async ({ refused }) => {
  const { readInputs } = useKernel(refused);
  const rules = openRuleSet();
  const plan = planOfServices("v4", [serviceAt("a", "10.96.0.1", ["10.1.1.7"])]);
  if (refused.startsWith("-A")) {
    await expect(rules.sync(plan, "all", stages)).rejects.toMatchObject({ code: "COMMIT_REJECTED" });
    expect(readInputs().filter((line) => line.startsWith("address"))).toEqual([]);
  } else {
    await rules.sync(plan, "all", stages);
    const removed = planOfServices("v4", [serviceAt("a", "10.96.0.1", [])]);
    await expect(rules.sync(removed, new Set(["ns/a"]), stages)).rejects.toMatchObject({ code: "COMMIT_REJECTED" });
  }
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
])("a failure of $tool stays the reason in every sync, whatever fails for lack of it", async (given) => {
  const { tool, script, says } = given;
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
  for (let attempt = 1; attempt <= 2; attempt++) {
    await expect(rules.sync(plan, "all", stages)).rejects.toThrow(says);
  }
});
