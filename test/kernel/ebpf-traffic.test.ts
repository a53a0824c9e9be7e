import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { web } from "../scenario/build.ts";
import { everywhere, nodePort } from "../scenario/everywhere.ts";
import type { State } from "../scenario/manifest.ts";
import { addressOf, clusterIP, n1, outside, pod, type Sender } from "../scenario/packet.ts";
import { type Family, families } from "../scenario/places.ts";
import { kpngEbpf } from "./backend/kpng-ebpf.ts";
import type { KpngProxy } from "./backend/kpng-proxy.ts";
import { whyNoBpf } from "./laboratory/bpf.ts";
import { buildTwoNodes, type TwoNodes } from "./laboratory/two-nodes.ts";

const whyNot = await whyNoBpf();
const note = whyNot === undefined ? "" : ` (skipped: ${whyNot})`;
const wait = { timeout: 60_000, interval: 200 };

describe.skipIf(whyNot !== undefined)(`connections that kpng-ebpf counts${note}`, () => {
  let world: TwoNodes;
  let backend: KpngProxy;
  const state = web(everywhere, ["b", "c"]);

  beforeAll(async () => {
    world = await buildTwoNodes();
    const args = ["--service-traffic", "--metrics-bind-address", "127.0.0.1:10249", "--drift-interval", "1s"];
    backend = await kpngEbpf(world, { args });
    await backend.start({}, state);
  });
  afterAll(async () => {
    await backend?.close();
    await world?.close();
  });

  /** The counters of the metric by Service. *Shape:* `{ "default/web": 3 }`. */
  async function counted(): Promise<Readonly<Record<string, number>>> {
    const script = 'fetch("http://127.0.0.1:10249/metrics").then((r) => r.text()).then(console.log)';
    const text = await world.laboratory.run("n1", [process.execPath, "-e", script]);
    const lines = text.matchAll(/^kpng_service_connections_total\{service="([^"]+)"\} (\d+)$/gm);
    return Object.fromEntries([...lines].map(([, service = "", count]) => [service, Number(count)]));
  }

  const ofWeb = async (): Promise<number> => (await counted())["default/web"] ?? 0;

  async function ask(from: Sender, protocol: "tcp" | "udp", address: string, port: number, times = 1): Promise<void> {
    for (let time = 0; time < times; time++) {
      const answer = await world.agentOf(from).askOnce({ protocol, address, port, timeoutMs: 30_000 });
      expect(answer.kind, backend.log()).toBe("answer");
    }
  }

  const toWeb = (of: State, family: Family): string => addressOf(of, clusterIP("web"), family);

  test.each(families)("each connection of a pod and from outside is one (%s)", async (family) => {
    const before = await ofWeb();
    await ask(pod("a"), "tcp", toWeb(state, family), 80, 3);
    await ask(outside, "tcp", addressOf(state, nodePort.to, family), nodePort.port, 4);
    await ask(pod("a"), "udp", toWeb(state, family), 80, 5);
    await expect.poll(ofWeb, wait).toBe(before + 12);
  });

  test("connections of sockets that choose their endpoint are none, because conntrack sees the endpoint", async () => {
    const before = await ofWeb();
    await ask(n1, "tcp", toWeb(state, "v4"), 80, 2);
    await ask(pod("a"), "tcp", toWeb(state, "v4"), 80);
    await expect.poll(ofWeb, wait).toBe(before + 1);
  });
});
