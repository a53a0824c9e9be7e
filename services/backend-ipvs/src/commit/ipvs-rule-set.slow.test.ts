import { SyncRequests } from "@kpng/backend-kit/sync/sync-loop.ts";
import { expect, test } from "vitest";
import { frontend, routesOf, webPlan } from "../testing/plans.ts";
import { openRuleSet, planOf, planOfServices, stages } from "../testing/rule-sets.ts";
import { useKernel, useTools } from "../testing/use-tools.ts";

const allWork = { ip: "", ipset: "", ipvsadm: "", "iptables-save": "", "iptables-restore": "" };

test("a change writes the lines of its Service only, and a sync without a change runs nothing", async () => {
  const { readInputs } = useTools(allWork);
  const rules = openRuleSet();
  const three = ["10.1.1.7", "10.1.2.8", "10.1.3.9"].map((address) => ({ address, port: 8080 }));
  await rules.sync(planOf(0, {}), "all", stages);
  const full = readInputs().length;
  expect(full).toBeGreaterThan(500);

  const added = planOf(42, { sets: { cluster: three, local: [] } });
  expect(await rules.sync(added, new Set(["ns/s42"]), stages)).toMatchObject({
    mode: "partial",
    fields: { puts: 1, deletes: 0 },
  });
  expect(readInputs().slice(full)).toEqual(["-a -t 10.96.0.42:80 -r 10.1.3.9:8080 -m -w 1"]);

  expect(await rules.sync(added, new Set(["ns/s42"]), stages)).toMatchObject({ mode: "none" });
  expect(readInputs()).toHaveLength(full + 1);
});

test("link-local addresses, which come and go with pods, do not render all Services again", async () => {
  useTools({ ...allWork, "ip6tables-save": "", "ip6tables-restore": "" });
  let v6 = ["2001:db8::1", "fe80::1"];
  const rules = openRuleSet({ family: "v6", localAddresses: () => ({ v4: [], v6 }) });
  const plan = planOfServices("v6", [webPlan([frontend({ address: "fd00::1" })])]);
  await rules.sync(plan, "all", stages);
  const asked: string[] = [];
  const keys = () => {
    asked.push("all");
    return plan.keys();
  };
  v6 = ["fe80::2", "2001:db8::1"];
  await rules.sync({ ...plan, keys }, new Set(), stages);
  expect(asked).toEqual([]);
  v6 = ["2001:db8::1", "2001:db8::2"];
  await rules.sync({ ...plan, keys }, new Set(), stages);
  expect(asked).toEqual(["all"]);
});

test("connections that take long to read are read rarely while endpoints drain", async () => {
  useTools(allWork);
  let [nowMs, reads] = [0, 0];
  const readConnections = async () => {
    reads++;
    nowMs += 100;
    return new Map();
  };
  const rules = openRuleSet({ nowMs: () => nowMs, readConnections });
  await rules.sync(planOf(0, {}), "all", stages);
  const removed = planOf(42, { sets: { cluster: [], local: [] } });
  for (let sync = 0; sync < 10; sync++) {
    nowMs += 100;
    await rules.sync(removed, new Set(["ns/s42"]), stages);
  }
  expect(reads).toBe(1);
  nowMs += 2_000;
  await rules.sync(removed, new Set(), stages);
  expect(reads).toBe(2);
});

test("node ports follow the addresses of the node in the next sync of any Service", async () => {
  const { readInputs } = useTools(allWork);
  let v4 = ["192.0.2.1"];
  const rules = openRuleSet({ localAddresses: () => ({ v4, v6: [] }) });
  const place = { kind: "nodePort", address: undefined, port: 30_080, protocol: "UDP" } as const;
  const nodePort = frontend({ ...place, routes: routesOf.external });
  const plan = planOfServices("v4", [webPlan([nodePort], { protocol: "UDP" })]);
  await rules.sync(plan, "all", stages);
  const before = readInputs().length;
  v4 = ["192.0.2.2"];
  await rules.sync(plan, new Set(), stages);
  expect(readInputs().slice(before)).toEqual([
    "add KPNGIPVS-SERVERS 192.0.2.2,udp:30080",
    "add KPNGIPVS-MASQ 192.0.2.2,udp:30080",
    "-A -u 192.0.2.2:30080 -s rr",
    "-a -u 192.0.2.2:30080 -r 10.1.1.7:8080 -m -w 1",
    "-a -u 192.0.2.2:30080 -r 10.1.2.8:8080 -m -w 1",
    "-D -u 192.0.2.1:30080",
    "del KPNGIPVS-SERVERS 192.0.2.1,udp:30080",
    "del KPNGIPVS-MASQ 192.0.2.1,udp:30080",
  ]);
});

test("the sync after a failure reads the kernel", async () => {
  const ipvsadm =
    'grep -q 10.1.3.9 "$INPUT" && [ ! -e "$0.failed" ] && touch "$0.failed" && echo "no memory" >&2; exit 0';
  useTools({ ...allWork, ipvsadm });
  const rules = openRuleSet();
  await rules.sync(planOf(0, {}), "all", stages);
  const added = planOf(42, { sets: { cluster: [{ address: "10.1.3.9", port: 8080 }], local: [] } });
  await expect(rules.sync(added, new Set(["ns/s42"]), stages)).rejects.toMatchObject({ code: "COMMIT_REJECTED" });
  expect(await rules.sync(added, new Set(["ns/s42"]), stages)).toMatchObject({ mode: "full" });
});

test.each([
  ["virtual server", { ipvsadm: "exit 0" }],
  ["address", { ip: 'case "$*" in *link*) echo "4: kube-ipvs0: <NOARP,UP>" ;; esac' }],
  ["jump", { "ip6tables-save": 'PATH=$(echo "$PATH" | cut -d: -f2-); ip6tables-save | grep -v "^-A FORWARD "' }],
])("rules of an earlier run are not installed if a %s is missing", async (_name, tools) => {
  useKernel("refused");
  const plan = planOfServices("v6", [webPlan([frontend({ address: "fd00::1" })])]);
  await openRuleSet({ family: "v6" }).sync(plan, "all", stages);
  expect(await openRuleSet({ family: "v6" }).isInstalled()).toBe(true);
  useTools(tools);
  expect(await openRuleSet({ family: "v6" }).isInstalled()).toBe(false);
});

test("an endpoint that drains and that another program deletes is forgotten", async () => {
  useTools(allWork);
  const requests = new SyncRequests();
  const rules = openRuleSet({ requests });
  await rules.sync(planOf(0, {}), "all", stages);
  await rules.sync(planOf(42, { sets: { cluster: [], local: [] } }), new Set(["ns/s42"]), stages);
  expect(requests.take(1e9)).toBe(true);
  // The tools of this test list nothing.
  await rules.repair();
  expect(requests.nextAtMs).toBe(Number.POSITIVE_INFINITY);
});

test("an interface that the other family creates at the same time is set up, or the sync fails", async () => {
  const exists = 'grep -q "link add" "$INPUT" && echo "RTNETLINK answers: File exists" >&2 && exit 2';
  useTools({ ...allWork, ip: `${exists}; grep -q " up" "$INPUT" && echo "Cannot assign" >&2 && exit 2; exit 0` });
  await expect(openRuleSet().sync(planOf(0, {}), "all", stages)).rejects.toThrow("Cannot assign");
  const { readInputs } = useTools({ ...allWork, ip: `${exists}; exit 0` });
  const change = await openRuleSet().sync(planOf(0, {}), "all", stages);
  expect(readInputs().filter((line) => line.startsWith("link"))).toEqual([
    "link add kube-ipvs0 type dummy",
    "link set kube-ipvs0 up",
  ]);
  expect(change.differences().map(({ summary }) => summary)).toContain("interface kube-ipvs0: differs");
});

test("a foreign virtual server at an excluded address is left alone", async () => {
  const { readInputs } = useTools({ ...allWork, ipvsadm: '[ "$1" = -S ] && echo "-A -t 10.96.0.42:80 -s lc"; exit 0' });
  await openRuleSet({ excludedCIDRs: ["10.96.0.42/32"] }).sync(planOf(0, {}), "all", stages);
  expect(readInputs().filter((line) => /10\.96\.0\.42[:,]/.test(line))).toEqual([
    "add KPNGIPVS-MASQ-OTHERS 10.96.0.42,tcp:80",
  ]);
});

test("a virtual server of another program goes at the address and port of a Service, also without endpoints", async () => {
  const ipvsadm = 'if [ "$1" = -S ]; then echo "-A -t 10.96.0.42:80 -s rr\n-A -t 203.0.113.9:80 -s lc"; fi';
  const { readInputs } = useTools({ ...allWork, ipvsadm });
  const frontends = [frontend({ address: "10.96.0.42", routes: routesOf.refused })];
  await openRuleSet().sync(planOf(42, { frontends, sets: { cluster: [], local: [] } }), "all", stages);
  expect(readInputs().filter((line) => line.startsWith("-D "))).toEqual(["-D -t 10.96.0.42:80"]);
});
