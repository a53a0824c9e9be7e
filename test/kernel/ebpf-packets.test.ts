import { fileURLToPath } from "node:url";
import { AgentClient } from "@kpng/laboratory/agent/agent-client.ts";
import { named, publicAddress, together, web } from "@kpng/laboratory/scenario/build.ts";
import { balancer, everywhere, nodePort } from "@kpng/laboratory/scenario/everywhere.ts";
import {
  addressOf,
  clusterIP,
  loadBalancerIP,
  masqueradeAddresses,
  n1,
  nodeAddress,
  outside,
  pod,
  type Sender,
} from "@kpng/laboratory/scenario/packet.ts";
import { boundAddress, families, hosts, podCIDRs } from "@kpng/laboratory/scenario/places.ts";
import { beforeAll, expect, test, vi } from "vitest";
import { kpngEbpf } from "./backend/kpng-proxy.ts";
import { describeBpf } from "./describe-bpf.ts";
import { useProxy } from "./use-proxy.ts";

const tcp = { ports: [{ port: 80, protocols: ["tcp"] }] } as const;
const dump = fileURLToPath(new URL("../../services/backend-ebpf/src/testing/dump.ts", import.meta.url));
/** The room for endpoints of each family. */
const room = 64;

/** Prints where a connection leads, by the address that the process sees. */
const client = `const [host, port] = process.argv.slice(1);
const socket = require("node:net").connect({ host, port: Number(port) }, () => {
  console.log(socket.remoteAddress + " " + socket.remotePort);
  socket.destroy();
});`;

/** Sends from one port to several places, again until each has answered; prints how many have after 30 s at most. */
const severalPlaces = `const places = process.argv.slice(1).map((text) => text.split(" "));
const answered = new Set();
const socket = require("node:dgram").createSocket(places[0][0].includes(":") ? "udp6" : "udp4");
const end = () => { console.log(answered.size); process.exit(); };
socket.on("message", (_text, { address, port }) => answered.add(address + port).size === places.length && end());
socket.bind(33_333, () => setInterval(() => places.forEach(([address, port]) => socket.send("?", port, address)), 200));
setTimeout(end, 30_000);`;

/** Connects, says so, and sends one byte when it is told to; prints how the connection goes on. */
const idleClient = `const [address, port] = process.argv.slice(1);
const socket = require("node:net").connect(Number(port), address);
let greeted = false;
socket.on("data", () => { if (greeted) { console.log("answered"); process.exit(); } greeted = true; console.log("open"); });
socket.on("error", ({ code }) => { console.log(code); process.exit(); });
process.stdin.once("data", () => { socket.write("x"); setTimeout(() => { console.log("silent"); process.exit(); }, 10_000); });`;

describeBpf("sockets that kpng-ebpf serves, and packets, which netfilter translates", () => {
  vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });
  const args = ["--max-endpoints", String(room)];
  const { world, proxy: backend } = useProxy((nodes) => kpngEbpf(nodes, { args }));
  /** A process in pod a that is in no served cgroup, such as one of a virtual machine. */
  let unserved: AgentClient;

  beforeAll(async () => {
    await backend().start({}, web(tcp, ["c"]));
    unserved = await AgentClient.start(world().laboratory, "a");
  });

  async function whoAnswers(from: Sender, address: string, source?: string): Promise<string> {
    const target = { protocol: "tcp", address, port: 80, from: source, timeoutMs: 5_000 } as const;
    const answer = await world().agentOf(from).askOnce(target);
    return answer.kind === "answer" ? answer.name : answer.kind;
  }

  test.each(families)("a process sees the address that it asked for (%s)", async (family) => {
    const address = addressOf(web(tcp, ["c"]), clusterIP("web"), family);
    const enter = ["sh", "-c", 'echo 0 >"$0/cgroup.procs" && exec "$@"', backend().word("cgroup")];
    const said = await world().laboratory.run("n1", [...enter, process.execPath, "-e", client, address, "80"]);
    expect(said.trim()).toBe(`${address} 80`);
  });

  test.each(families)(
    "a socket that chose a source which no endpoint can answer is masqueraded (%s)",
    async (family) => {
      const address = addressOf(web(tcp, ["c"]), clusterIP("web"), family);
      expect(await whoAnswers(n1, address, boundAddress[family]), backend().log()).toBe("c");
    },
  );

  test("a Service for whose endpoints there is no room is served by the rules, and later by its sockets again", async () => {
    const ports = Array.from({ length: room / 2 + 8 }, (_, at) => ({ port: 1_000 + at, protocols: ["tcp"] as const }));
    const hog = named("hog", { number: 66, ports }, ["d"]);
    const vip = addressOf(web(tcp, ["b"]), clusterIP("web"), "v4");
    /** What sockets do with the Service's address. */
    const installed = async (): Promise<string | undefined> => {
      const command = [process.execPath, dump, JSON.stringify({ maxEndpoints: room })];
      const lines = (await world().laboratory.run("n1", command)).split("\n");
      return lines.find((line) => line.startsWith(`TCP ${vip}:80 `))?.split("node ")[1];
    };
    await backend().apply(web(tcp, ["b"]));
    expect(await installed()).toMatch(/^balance /);
    await backend().apply(together(web(tcp, ["b"]), hog));
    expect(backend().log()).toContain("a map is full");
    await backend().apply(together(web(tcp, ["c"]), hog));
    expect([await whoAnswers(n1, vip), await whoAnswers(pod("a"), vip)], backend().log()).toEqual(["c", "c"]);
    // The address goes to another Service.
    await backend().apply(together(named("other", { number: 11, ...tcp }, ["d"]), hog));
    expect([await whoAnswers(n1, vip), await whoAnswers(pod("a"), vip)], backend().log()).toEqual(["d", "d"]);
    await backend().apply(named("other", { number: 11, ...tcp }, ["d"]));
    // Room is free for others after a grace period, and given by the next change.
    await expect
      .poll(async () => {
        await backend().apply(named("other", { number: 11, ...tcp }, ["d"]));
        return installed();
      })
      .toMatch(/^balance /);
  });

  test.each(families)("one source port of a client reaches an endpoint through two frontends (%s)", async (family) => {
    const ports = [{ port: 80, nodePort: 30_080 }];
    const state = web({ ports, loadBalancerIPs: [publicAddress(10)], external: "Local" }, ["a"]);
    await backend().apply(state);
    const places = [
      `${addressOf(state, loadBalancerIP("web"), family)} 80`,
      `${addressOf(state, nodeAddress, family)} 30080`,
    ];
    const command = [process.execPath, "-e", severalPlaces, ...places];
    expect((await world().laboratory.run("client", command)).trim(), backend().log()).toBe("2");
  });

  const ask = async (agent: AgentClient, address: string, port: number) =>
    agent.askOnce({ protocol: "tcp", address, port, timeoutMs: 5_000 });

  test("a pod that appears while no process runs is served, and its first connection does not hang", async () => {
    const { laboratory } = world();
    const state = web({}, ["b"]);
    await backend().apply(state);
    await backend().stop();
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
    await backend().start({}, state);
  });

  test("another program's masquerade of pods applies to connections of Services that leave the cluster", async () => {
    const rules = families.map((family) => {
      const [ip, cidr] = [family === "v4" ? "ip" : "ip6", podCIDRs.cluster[family]];
      return `${ip} saddr ${cidr} ${ip} daddr != ${cidr} masquerade`;
    });
    const chain = `chain agent {\ntype nat hook postrouting priority srcnat\n${rules.join("\n")}\n}`;
    await world().laboratory.run("n1", ["nft", "-f", "-"], `table inet masq-agent {\n${chain}\n}\n`);
    const state = web({}, ["n2"]);
    await backend().apply(state);
    for (const family of families) {
      const answer = await ask(unserved, addressOf(state, clusterIP("web"), family), 80);
      expect(answer, backend().log()).toMatchObject({ name: "n2" });
      expect(
        answer.kind === "answer" && masqueradeAddresses(family).includes(answer.from),
        JSON.stringify(answer),
      ).toBe(true);
    }
    await world().laboratory.run("n1", ["nft", "delete", "table", "inet", "masq-agent"]);
  });

  test("connections from outside are masqueraded also where an interface does not forward by its own setting", async () => {
    const state = web(everywhere, ["c"]);
    await backend().apply(state);
    const set = (value: number) =>
      world().laboratory.run("n1", ["sh", "-c", `echo ${value} >/proc/sys/net/ipv6/conf/eth0/forwarding`]);
    await set(0);
    const answer = await ask(world().agentOf(outside), hosts.n1.v6, nodePort.port);
    await set(1);
    expect(answer, backend().log()).toMatchObject({ name: "c" });
    expect(answer.kind === "answer" && masqueradeAddresses("v6").includes(answer.from), JSON.stringify(answer)).toBe(
      true,
    );
  });

  test.each(families)(
    "an idle connection from outside does not hang after conntrack was flushed (%s)",
    async (family) => {
      const state = web(everywhere, ["b"]);
      await backend().apply(state);
      const said: string[] = [];
      const words = [addressOf(state, balancer.to, family), String(balancer.port)];
      const child = world().laboratory.start("client", [process.execPath, "-e", idleClient, ...words]);
      child.stdout?.on("data", (text) => said.push(...String(text).split("\n").filter(Boolean)));
      const wait = { timeout: 30_000, interval: 50 };
      await expect.poll(() => said, { ...wait, message: backend().log() }).toEqual(["open"]);
      await world().laboratory.run("n1", ["conntrack", "-F"]);
      child.stdin?.write("go");
      await expect.poll(() => said.length, wait).toBe(2);
      expect(["answered", "ECONNRESET"]).toContain(said[1]);
    },
  );
});
