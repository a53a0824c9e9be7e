import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { named, publicAddress, together, web } from "../scenario/build.ts";
import { addressOf, clusterIP, loadBalancerIP, n1, nodeAddress, pod, type Sender } from "../scenario/packet.ts";
import { boundAddress, families } from "../scenario/places.ts";
import { type KpngEbpf, kpngEbpf } from "./backend/kpng-proxy.ts";
import { whyNoBpf } from "./laboratory/bpf.ts";
import { buildTwoNodes, type TwoNodes } from "./laboratory/two-nodes.ts";

const whyNot = await whyNoBpf();
const note = whyNot === undefined ? "" : ` (skipped: ${whyNot})`;
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

describe.skipIf(whyNot !== undefined)(`sockets that kpng-ebpf serves${note}`, () => {
  vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });
  let world: TwoNodes;
  let backend: KpngEbpf;

  beforeAll(async () => {
    world = await buildTwoNodes();
    backend = await kpngEbpf(world, { args: ["--max-endpoints", String(room)] });
    await backend.start({}, web(tcp, ["c"]));
  });
  afterAll(async () => {
    await backend?.close();
    await world?.close();
  });

  async function whoAnswers(from: Sender, address: string, source?: string): Promise<string> {
    const target = { protocol: "tcp", address, port: 80, atOnce: 1, atMost: 1, wanted: 1, timeoutMs: 5_000 } as const;
    const [answer] = await world.agentOf(from).send({ kind: "ask", ...target, from: source });
    return answer?.kind === "answer" ? answer.name : (answer?.kind ?? "silent");
  }

  test.each(families)("a process sees the address that it asked for (%s)", async (family) => {
    const address = addressOf(web(tcp, ["c"]), clusterIP("web"), family);
    const enter = ["sh", "-c", 'echo 0 >"$0/cgroup.procs" && exec "$@"', backend.cgroup];
    const said = await world.laboratory.run("n1", [...enter, process.execPath, "-e", client, address, "80"]);
    expect(said.trim()).toBe(`${address} 80`);
  });

  test.each(families)(
    "a socket that chose a source which no endpoint can answer is masqueraded (%s)",
    async (family) => {
      const address = addressOf(web(tcp, ["c"]), clusterIP("web"), family);
      expect(await whoAnswers(n1, address, boundAddress[family]), backend.log()).toBe("c");
    },
  );

  test("a Service for whose endpoints there is no room is served by the rules, and later by its sockets again", async () => {
    const ports = Array.from({ length: room / 2 + 8 }, (_, at) => ({ port: 1_000 + at, protocols: ["tcp"] as const }));
    const hog = named("hog", { number: 66, ports }, ["d"]);
    const vip = addressOf(web(tcp, ["b"]), clusterIP("web"), "v4");
    /** What sockets do with the Service's address. */
    const installed = async (): Promise<string | undefined> => {
      const command = [process.execPath, dump, backend.bpfFolder, JSON.stringify({ maxEndpoints: room })];
      const lines = (await world.laboratory.run("n1", command)).split("\n");
      return lines.find((line) => line.startsWith(`TCP ${vip}:80 `))?.split("node ")[1];
    };
    await backend.apply(web(tcp, ["b"]));
    expect(await installed()).toMatch(/^balance /);
    await backend.apply(together(web(tcp, ["b"]), hog));
    expect(backend.log()).toContain("a map is full");
    await backend.apply(together(web(tcp, ["c"]), hog));
    expect([await whoAnswers(n1, vip), await whoAnswers(pod("a"), vip)], backend.log()).toEqual(["c", "c"]);
    // The address goes to another Service.
    await backend.apply(together(named("other", { number: 11, ...tcp }, ["d"]), hog));
    expect([await whoAnswers(n1, vip), await whoAnswers(pod("a"), vip)], backend.log()).toEqual(["d", "d"]);
    await backend.apply(named("other", { number: 11, ...tcp }, ["d"]));
    // Room is free for others after a grace period, and given by the next change.
    await expect
      .poll(async () => {
        await backend.apply(named("other", { number: 11, ...tcp }, ["d"]));
        return installed();
      })
      .toMatch(/^balance /);
  });

  test.each(families)("one source port of a client reaches an endpoint through two frontends (%s)", async (family) => {
    const ports = [{ port: 80, nodePort: 30_080 }];
    const state = web({ ports, loadBalancerIPs: [publicAddress(10)], external: "Local" }, ["a"]);
    await backend.apply(state);
    const places = [
      `${addressOf(state, loadBalancerIP("web"), family)} 80`,
      `${addressOf(state, nodeAddress, family)} 30080`,
    ];
    const command = [process.execPath, "-e", severalPlaces, ...places];
    expect((await world.laboratory.run("client", command)).trim(), backend.log()).toBe("2");
  });
});
