import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { until } from "../../../../test/cluster/until.ts";
import { describePackets } from "../../../../test/kernel/describe-packets.ts";
import { findTools } from "../read/find-tools.ts";
import type { RunTool } from "../read/run-tool.ts";
import { serviceManifests } from "../testing/manifests.ts";
import { PacketCounters } from "./packet-counters.ts";
import { restoreRules } from "./restore-rules.ts";

const cli = fileURLToPath(new URL("../../../cli/src/main.ts", import.meta.url));
const main = fileURLToPath(new URL("../main.ts", import.meta.url));

/** A Service with a node port, whose endpoint is on the node itself. */
const state = serviceManifests({ clusterIP: "10.96.0.10", nodePort: 30_080, endpoint: "10.0.1.1" });

describePackets("packet counters", () => {
  let laboratory: Laboratory;
  beforeAll(async () => {
    laboratory = await Laboratory.open();
    await laboratory.add("node");
  });
  afterAll(() => laboratory.close());

  test.each([
    { name: "nfacct is not installed", script: undefined, reason: /nfacct cannot be started/ },
    {
      name: "the kernel does not support counters",
      script: "echo 'error: No such file or directory' >&2; exit 1",
      reason: /nfacct add failed \(exit status 1\)/,
    },
    // The real nfacct exits with 0 even on a kernel without counters. This one creates none, so the kernel has none.
    { name: "the kernel rejects rules that count", script: "exit 0", reason: /iptables-restore rejected/ },
  ])("if $name, rules do not count packets, which is logged once", async ({ script, reason }) => {
    const lines: Record<string, unknown>[] = [];
    const log = {
      error() {},
      debug() {},
      info: (msg: string, fields = {}) => void lines.push({ msg, ...fields }),
      with: () => log,
    };
    const run: RunTool = async (command, { input }) => {
      if (command[0] !== "nfacct") return laboratory.tryRun("node", command, input);
      if (script === undefined) throw new Error("nfacct cannot be started");
      return laboratory.tryRun("node", ["sh", "-c", script]);
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

  test("rules count packets for metrics with kube-proxy's names, --diff finds no difference, --cleanup deletes the counters", async (context) => {
    const run = (command: string) => laboratory.run("counting", ["sh", "-c", command]);
    await laboratory.add("counting");
    const probe = await laboratory.tryRun("counting", [
      "sh",
      "-c",
      "nfacct add probe && nfacct get probe && nfacct delete probe",
    ]);
    if (probe.exitCode !== 0) {
      if (process.env.CI === "true") expect.fail(`CI must have nfacct: ${probe.stderr}`);
      context.skip(`no nfacct here: ${probe.stderr}`);
    }
    await writeFile(
      join(laboratory.folder, "state.json"),
      JSON.stringify({ apiVersion: "v1", kind: "List", items: state }),
    );
    // An endpoint on the node itself, and two hosts that are connected through the node.
    await run("ip address add 10.0.1.1/32 dev lo && echo 1 >/proc/sys/net/ipv4/ip_forward");
    for (const [host, network] of [
      ["a", "192.0.2"],
      ["b", "198.51.100"],
    ] as const) {
      await laboratory.add(host);
      await run(`ip link add to-${host} type veth peer name eth0 netns ${laboratory.path(host)}`);
      await run(`ip address add ${network}.1/24 dev to-${host} && ip link set to-${host} up`);
      await laboratory.run(host, ["ip", "address", "add", `${network}.2/24`, "dev", "eth0"]);
      await laboratory.run(host, ["ip", "link", "set", "eth0", "up"]);
      await laboratory.run(host, ["ip", "route", "add", "default", "via", `${network}.1`]);
    }
    const serve = (place: string, port: number, address: string) =>
      laboratory.start(place, [
        ...[process.execPath, "-e"],
        `require("net").createServer((s) => { s.on("error", () => {}); s.write("hello") }).listen(${port}, "${address}")`,
      ]);
    serve("counting", 8080, "10.0.1.1");
    serve("b", 9, "198.51.100.2");
    const backend = [
      ...[process.execPath, cli, "file", "-i", join(laboratory.folder, "state.json"), "to-local", "to-iptables"],
      ...["--node-name", "n1", "--state-dir", "none"],
    ];
    const child = laboratory.start("counting", [...backend, "--metrics-bind-address", "127.0.0.1:9100"]);
    let said = "";
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      said += text;
    });
    await until(
      "rules count packets",
      () => said.includes('"rules count packets"'),
      20_000,
      () => said,
    );
    const packets = async (metric: string): Promise<number> => {
      const ask = `fetch("http://127.0.0.1:9100/metrics").then(async (r) => console.log(await r.text()))`;
      const text = await laboratory.run("counting", [process.execPath, "-e", ask]);
      return Number(new RegExp(`^kubeproxy_iptables_${metric}_packets_total (\\d+)$`, "m").exec(text)?.[1]);
    };
    const once = (place: string, address: string, port: number) =>
      laboratory.run(place, [
        ...[process.execPath, "-e"],
        `require("net").connect(${port}, "${address}").on("error", () => setTimeout(() => process.exit(1), 50)).on("data", () => process.exit(0))`,
      ]);
    await until("both servers answer", async () => {
      await once("counting", "10.0.1.1", 8080);
      await once("a", "198.51.100.2", 9);
      return true;
    });
    await until("the metrics exist", async () => (await packets("localhost_nodeports_accepted")) === 0);
    for (let count = 0; count < 3; count++) await once("counting", "127.0.0.1", 30_080);
    expect(await packets("localhost_nodeports_accepted")).toBe(3);
    expect(await packets("ct_state_invalid_dropped")).toBe(0);
    // Packets of a connection whose conntrack entry is deleted.
    await run("echo 0 >/proc/sys/net/netfilter/nf_conntrack_tcp_loose");
    const talker = laboratory.start("a", [
      ...[process.execPath, "-e"],
      `const s = require("net").connect(9, "198.51.100.2").on("error", () => {}); s.on("data", () => { console.log("talks"); setInterval(() => s.write("more"), 50) })`,
    ]);
    await new Promise((resolve) => talker.stdout?.once("data", resolve));
    await run("conntrack -D -p tcp --orig-port-dst 9");
    await until("invalid packets are counted", async () => (await packets("ct_state_invalid_dropped")) > 0);
    talker.kill();
    expect(await laboratory.run("counting", [...backend, "--diff"])).toBe("no difference\n");
    child.kill();
    await new Promise((resolve) => child.once("close", resolve));
    // The next run adopts the counters with their values.
    const again = await laboratory.tryRun("counting", [...backend, "--once"]);
    expect(again.stderr).toContain('"rules count packets"');
    expect(await run("nfacct list")).toMatch(/pkts = 0*3, .*= kpng_localhost_nps_pkts;/);
    await laboratory.run("counting", [process.execPath, main, "--cleanup"]);
    expect(await run("nfacct list")).toBe("");
  });
});
