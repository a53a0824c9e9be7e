import { spawn, spawnSync } from "node:child_process";
import { chmod, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { describePackets } from "../../../test/kernel/describe-packets.ts";
import { Laboratory } from "../../cli/src/demo/namespaces.ts";
import { PacketCounters } from "./commit/packet-counters.ts";
import { restoreRules } from "./commit/restore-rules.ts";
import type { RunTool } from "./commit/run-tool.ts";
import { findTools } from "./read/find-tools.ts";

const cli = fileURLToPath(new URL("../../cli/src/main.ts", import.meta.url));
const main = fileURLToPath(new URL("main.ts", import.meta.url));

/** A node port whose endpoint is on the node itself, and one that is routed through it. */
const state = [
  {
    apiVersion: "v1",
    kind: "Service",
    metadata: { namespace: "a", name: "web" },
    spec: {
      type: "NodePort",
      clusterIP: "10.96.0.10",
      clusterIPs: ["10.96.0.10"],
      ports: [{ port: 80, nodePort: 30_080, protocol: "TCP" }],
    },
  },
  {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: { namespace: "a", name: "web-1", labels: { "kubernetes.io/service-name": "web" } },
    addressType: "IPv4",
    ports: [{ name: "", port: 8080, protocol: "TCP" }],
    endpoints: [{ addresses: ["10.0.1.1"], conditions: { ready: true } }],
  },
];

describePackets("packet counters", () => {
  let laboratory: Laboratory;
  beforeAll(async () => {
    laboratory = await Laboratory.open();
    await laboratory.add("node");
  });
  afterAll(() => laboratory.close());

  test.each([
    { name: "there is no program nfacct", script: undefined, reason: /nfacct cannot be started/ },
    {
      name: "the kernel has no counters",
      script: "echo 'error: No such file or directory' >&2; exit 1",
      reason: /nfacct add \(exit 1\)/,
    },
    // The real program says nothing of a kernel that has no counters; there is none of this name in any.
    { name: "the kernel refuses rules that count", script: "exit 0", reason: /iptables-restore refused/ },
  ])("where $name rules do without, which is said once", async ({ script, reason }) => {
    const lines: Record<string, unknown>[] = [];
    const log = {
      error() {},
      debug() {},
      info: (msg: string, fields = {}) => void lines.push({ msg, ...fields }),
      with: () => log,
    };
    const run: RunTool = async (command, { input }) => {
      if (command[0] !== "nfacct") return laboratory.finish("node", command, input);
      if (script === undefined) throw new Error("nfacct cannot be started");
      return laboratory.finish("node", ["sh", "-c", script]);
    };
    const tools = await findTools("v4", "auto", run);
    if ("missing" in tools) throw new Error(tools.missing);
    const restore = (text: string) => restoreRules(text, { tools, run, lockSeconds: 5, timeoutMs: 30_000 });
    const counters = new PacketCounters({ prefix: "KPNG-", run, restore, log });
    await counters.open();
    await counters.open();
    expect(counters.names).toBeUndefined();
    expect(lines).toEqual([{ msg: "rules do not count packets", reason: expect.stringMatching(reason) }]);
    expect(await laboratory.run("node", ["iptables-save"])).not.toContain("KPNG");
  });
});

const whyNot = ["linux.uml", "nfacct", "iptables-legacy", "conntrack", "depmod"].find(
  (tool) =>
    spawnSync("sh", ["-c", `command -v ${tool}`], { env: { PATH: `${process.env.PATH}:/usr/sbin:/sbin` } }).status !==
    0,
);
const kernelName = "packet counters in user-mode Linux";
if (process.getuid?.() !== 0 || whyNot !== undefined) {
  const reason = whyNot === undefined ? "root is needed" : `there is no ${whyNot}`;
  test.skip(`${kernelName} (skipped: ${reason})`);
} else {
  test(`${kernelName}: rules count, metrics have kube-proxy's names, --cleanup takes the counters away`, async () => {
    const folder = await mkdtemp(join(tmpdir(), "kpng-uml-"));
    try {
      const items = { apiVersion: "v1", kind: "List", items: state };
      await writeFile(join(folder, "state.json"), JSON.stringify(items));
      await writeFile(join(folder, "init"), initScript(folder));
      await chmod(join(folder, "init"), 0o755);
      const ended = await boot(folder);
      const output = await readFile(join(folder, "output"), "utf8").catch(() => `no output; the kernel: ${ended}`);
      expect(output).toContain('"msg":"rules count packets"');
      expect(output).toMatch(
        /-A KPNG-FORWARD -m conntrack --ctstate INVALID -m nfacct --nfacct-name +kpng_invalid_dropped_pkts -j DROP/,
      );
      // Three connections; none before.
      expect(output).toMatch(/^before: kubeproxy_iptables_localhost_nodeports_accepted_packets_total 0$/m);
      expect(output).toMatch(/^after: kubeproxy_iptables_localhost_nodeports_accepted_packets_total 3$/m);
      expect(output).toMatch(/^after: kubeproxy_iptables_ct_state_invalid_dropped_packets_total [1-9]/m);
      expect(output).toMatch(/^second sync: 0 changes$/m);
      expect(output).toMatch(/^left: $/m);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  }, 240_000);
}

/** Boots Debian's user-mode Linux, whose kernel has the counters, on this machine's files. */
function boot(folder: string): Promise<string> {
  const options = [
    "mem=768M",
    "rootfstype=hostfs",
    "rootflags=/",
    "rw",
    `init=${folder}/init`,
    "con=null",
    "con0=null",
  ];
  const script = `version=$(ls /usr/lib/uml/modules | head -1) && mkdir -p /lib/modules && ln -sfn /usr/lib/uml/modules/$version /lib/modules/$version && depmod $version && exec timeout -k 5 200 linux.uml ${options.join(" ")}`;
  return new Promise((resolve) => {
    const child = spawn("sh", ["-c", script], { env: { ...process.env, PATH: `${process.env.PATH}:/usr/sbin:/sbin` } });
    let said = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (text: string) => {
        said += text;
      });
    }
    // It aborts on power-off; what was written counts.
    child.once("close", () => resolve(said.slice(-2_000)));
  });
}

/** What runs in there: the node, an endpoint on it, and two hosts that talk through it. */
function initScript(folder: string): string {
  const node = process.execPath;
  const backend = `${node} ${cli} file -i ${folder}/state.json to-local to-iptables --node-name n1 --iptables-variant legacy --state-dir none`;
  const metrics = `${node} -e 'fetch("http://127.0.0.1:9100/metrics").then((r) => r.text()).then((t) => console.log(t))' | grep '^kubeproxy_iptables_[cl]'`;
  return `#!/bin/bash
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
exec >${folder}/output 2>&1
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs run /run; mount -t tmpfs tmp /var/lib
for m in nfnetlink_acct xt_nfacct xt_conntrack xt_statistic xt_mark xt_comment xt_addrtype xt_nat xt_MASQUERADE ipt_REJECT iptable_nat iptable_filter nf_conntrack_netlink veth; do modprobe $m; done
ip link set lo up; ip addr add 10.0.1.1/32 dev lo
for h in a b; do ip netns add $h; ip link add to-$h type veth peer name eth0 netns $h; ip link set to-$h up; ip -n $h link set eth0 up; done
ip addr add 192.0.2.1/24 dev to-a; ip -n a addr add 192.0.2.2/24 dev eth0; ip -n a route add default via 192.0.2.1
ip addr add 198.51.100.1/24 dev to-b; ip -n b addr add 198.51.100.2/24 dev eth0; ip -n b route add default via 198.51.100.1
echo 1 >/proc/sys/net/ipv4/ip_forward
serve='require("net").createServer((s) => { s.on("error", () => {}); s.write("hello") }).listen'
${node} -e "$serve(8080, '10.0.1.1')" & ip netns exec b ${node} -e "$serve(9, '198.51.100.2')" &
${backend} --metrics-bind-address 127.0.0.1:9100 &
proxy=$!
for i in $(seq 200); do iptables-legacy-save | grep -q KPNG-SEP || iptables-legacy-save | grep -q 10.0.1.1:8080 && break; sleep 0.1; done
sleep 1
iptables-legacy-save | grep nfacct
${metrics} | sed 's/^/before: /'
for i in 1 2 3; do ${node} -e 'require("net").connect(30080, "127.0.0.1").on("data", () => process.exit(0))'; done
echo 0 >/proc/sys/net/netfilter/nf_conntrack_tcp_loose
ip netns exec a ${node} -e 'const s = require("net").connect(9, "198.51.100.2"); s.on("error", () => {}); s.on("data", () => { setInterval(() => s.write("more"), 100); console.log("talking") }); setTimeout(() => process.exit(0), 3000)' &
sleep 2
conntrack -D -p tcp --orig-port-dst 9 >/dev/null
wait $!
${metrics} | sed 's/^/after: /'
kill $proxy; wait $proxy
echo "second sync: $(${backend} --once --dry-run 2>/dev/null | grep -c '^-A KPNG.*--to-destination') changes"
${node} ${main} --cleanup --iptables-variant legacy
echo "left: $(nfacct list)"
sync; echo o >/proc/sysrq-trigger
`;
}
