import { AgentClient } from "@kpng/laboratory/agent/agent-client.ts";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { web } from "../scenario/build.ts";
import { balancer, everywhere, nodePort } from "../scenario/everywhere.ts";
import { addressOf, clusterIP, masqueradeAddresses, outside } from "../scenario/packet.ts";
import { families, hosts, podCIDRs } from "../scenario/places.ts";
import { type KpngEbpf, kpngEbpf } from "./backend/kpng-proxy.ts";
import { whyNoBpf } from "./laboratory/bpf.ts";
import { buildTwoNodes, type TwoNodes } from "./laboratory/two-nodes.ts";

const whyNot = await whyNoBpf();
const note = whyNot === undefined ? "" : ` (skipped: ${whyNot})`;

/** Connects, says so, and sends one byte when it is told to; prints how the connection goes on. */
const idleClient = `const [address, port] = process.argv.slice(1);
const socket = require("node:net").connect(Number(port), address);
let greeted = false;
socket.on("data", () => { if (greeted) { console.log("answered"); process.exit(); } greeted = true; console.log("open"); });
socket.on("error", ({ code }) => { console.log(code); process.exit(); });
process.stdin.once("data", () => { socket.write("x"); setTimeout(() => { console.log("silent"); process.exit(); }, 10_000); });`;

describe.skipIf(whyNot !== undefined)(`packets to Services of kpng-ebpf are netfilter's${note}`, () => {
  vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });
  let world: TwoNodes;
  let backend: KpngEbpf;
  /** A process in pod a that is in no served cgroup, such as one of a virtual machine. */
  let unserved: AgentClient;

  beforeAll(async () => {
    world = await buildTwoNodes();
    backend = await kpngEbpf(world);
    unserved = await AgentClient.start(world.laboratory, "a");
  });
  afterAll(async () => {
    await backend?.close();
    await world?.close();
  });

  const ask = async (agent: AgentClient, address: string, port: number) =>
    agent.askOnce({ protocol: "tcp", address, port, timeoutMs: 5_000 });

  test("a pod that appears while no process runs is served, and its first connection does not hang", async () => {
    const { laboratory } = world;
    const state = web({}, ["b"]);
    await backend.start({}, state);
    await backend.stop();
    await laboratory.add("late");
    const batch = (name: string, lines: readonly string[]) =>
      laboratory.run(name, ["ip", "-batch", "-"], `${lines.join("\n")}\n`);
    await batch("n1", [
      `link add veth-late type veth peer name eth0 netns ${laboratory.path("late")}`,
      "address add 10.1.3.1/24 dev veth-late",
      "address add fd00:10:1:3::1/64 dev veth-late nodad",
      "link set veth-late up",
    ]);
    await batch("late", [
      "address add 10.1.3.15/24 dev eth0",
      "address add fd00:10:1:3::15/64 dev eth0 nodad",
      "link set eth0 up",
      "route add default via 10.1.3.1",
      "route add default via fd00:10:1:3::1",
    ]);
    const agent = await AgentClient.start(laboratory, "late");
    for (const family of families) {
      expect(await ask(agent, addressOf(state, clusterIP("web"), family), 80)).toMatchObject({ name: "b" });
    }
    await batch("n1", ["link delete veth-late"]);
  });

  test("another program's masquerade of pods applies to connections of Services that leave the cluster", async () => {
    const rules = families.map((family) => {
      const [ip, cidr] = [family === "v4" ? "ip" : "ip6", podCIDRs.cluster[family]];
      return `${ip} saddr ${cidr} ${ip} daddr != ${cidr} masquerade`;
    });
    const chain = `chain agent {\ntype nat hook postrouting priority srcnat\n${rules.join("\n")}\n}`;
    await world.laboratory.run("n1", ["nft", "-f", "-"], `table inet masq-agent {\n${chain}\n}\n`);
    const state = web({}, ["n2"]);
    await backend.start({}, state);
    for (const family of families) {
      const answer = await ask(unserved, addressOf(state, clusterIP("web"), family), 80);
      expect(answer, backend.log()).toMatchObject({ name: "n2" });
      expect(
        answer.kind === "answer" && masqueradeAddresses(family).includes(answer.from),
        JSON.stringify(answer),
      ).toBe(true);
    }
    await world.laboratory.run("n1", ["nft", "delete", "table", "inet", "masq-agent"]);
  });

  test("connections from outside are masqueraded also where an interface does not forward by its own setting", async () => {
    const state = web(everywhere, ["c"]);
    await backend.start({}, state);
    const set = (value: number) =>
      world.laboratory.run("n1", ["sh", "-c", `echo ${value} >/proc/sys/net/ipv6/conf/eth0/forwarding`]);
    await set(0);
    const answer = await ask(world.agentOf(outside), hosts.n1.v6, nodePort.port);
    await set(1);
    expect(answer, backend.log()).toMatchObject({ name: "c" });
    expect(answer.kind === "answer" && masqueradeAddresses("v6").includes(answer.from), JSON.stringify(answer)).toBe(
      true,
    );
  });

  test.each(families)(
    "an idle connection from outside does not hang after conntrack was flushed (%s)",
    async (family) => {
      const state = web(everywhere, ["b"]);
      await backend.start({}, state);
      const said: string[] = [];
      const words = [addressOf(state, balancer.to, family), String(balancer.port)];
      const child = world.laboratory.start("client", [process.execPath, "-e", idleClient, ...words]);
      child.stdout?.on("data", (text) => said.push(...String(text).split("\n").filter(Boolean)));
      const wait = { timeout: 30_000, interval: 50 };
      await expect.poll(() => said, { ...wait, message: backend.log() }).toEqual(["open"]);
      await world.laboratory.run("n1", ["conntrack", "-F"]);
      child.stdin?.write("go");
      await expect.poll(() => said.length, wait).toBe(2);
      expect(["answered", "ECONNRESET"]).toContain(said[1]);
    },
  );
});
