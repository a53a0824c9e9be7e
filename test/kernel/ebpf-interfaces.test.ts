import { fileURLToPath } from "node:url";
import { AgentClient } from "@kpng/laboratory/agent/agent-client.ts";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { web } from "../scenario/build.ts";
import { addressOf, clusterIP } from "../scenario/packet.ts";
import { families } from "../scenario/places.ts";
import { type KpngEbpf, kpngEbpf } from "./backend/kpng-ebpf.ts";
import { whyNoBpf } from "./laboratory/bpf.ts";
import { ForeignPrograms } from "./laboratory/foreign-programs.ts";
import { buildTwoNodes, type TwoNodes } from "./laboratory/two-nodes.ts";

const whyNot = await whyNoBpf();
const note = whyNot === undefined ? "" : ` (skipped: ${whyNot})`;
const damage = fileURLToPath(new URL("../../services/backend-ebpf/src/testing/damage.ts", import.meta.url));
const wait = { timeout: 60_000, interval: 200 };

/** A pod with an interface of its own, so that no bridge's program serves it; its processes are in no served cgroup. */
const [link, newPod] = ["veth-e", "e"];
const gateways = ["10.1.3.1", "fd00:10:1:3::1"];
const addressesOf = (last: number): readonly string[] => [`10.1.3.${last}/24`, `fd00:10:1:3::${last}/64`];

describe.skipIf(whyNot !== undefined)(`interfaces that kpng-ebpf serves${note}`, () => {
  vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });
  let world: TwoNodes;
  let backend: KpngEbpf;
  let foreign: ForeignPrograms;
  const state = web({}, ["b"]);
  /** No check finds a new interface in this time. */
  const args = ["--drift-interval", "1h"];
  const batch = (name: string, lines: readonly string[]) =>
    world.laboratory.run(name, ["ip", "-batch", "-"], `${lines.join("\n")}\n`);

  beforeAll(async () => {
    world = await buildTwoNodes();
    backend = await kpngEbpf(world, { args });
    foreign = await ForeignPrograms.open(world.laboratory, "n1");
    await backend.start({}, state);
  });
  afterAll(async () => {
    await backend?.close();
    await world?.close();
  });

  /** Adds the pod's interface, as a network plugin does, in a new namespace; returns the agent in it. */
  async function addPod(name: string): Promise<AgentClient> {
    const { laboratory } = world;
    await laboratory.add(name);
    // Without detection of duplicate addresses, an IPv6 address can be used at once.
    const add = (last: number, device: string) =>
      addressesOf(last).map((each) => `address add ${each} dev ${device}${each.includes(":") ? " nodad" : ""}`);
    await batch("n1", [
      `link add ${link} type veth peer name eth0 netns ${laboratory.path(name)}`,
      ...add(1, link),
      `link set ${link} up`,
    ]);
    await batch(name, [
      ...add(15, "eth0"),
      "link set eth0 up",
      ...gateways.map((gateway) => `route add default via ${gateway}`),
    ]);
    return AgentClient.start(laboratory, name);
  }

  const removePod = () => batch("n1", [`link delete ${link}`]);

  async function expectServed(agent: AgentClient): Promise<void> {
    for (const family of families) {
      const target = { address: addressOf(state, clusterIP("web"), family), port: 80, timeoutMs: 3_000 };
      const ask = () => agent.askOnce({ protocol: "tcp", ...target });
      await expect.poll(ask, { ...wait, message: backend.log() }).toMatchObject({ kind: "answer", name: "b" });
    }
  }

  /** Pinned links of interfaces that have gone. */
  async function stalePins(): Promise<readonly string[]> {
    const files = (await world.laboratory.run("n1", ["ls", `${backend.bpfFolder}/kpng-ebpf/links`])).split("\n");
    const indexes = [...(await world.laboratory.run("n1", ["ip", "-o", "link"])).matchAll(/^(\d+):/gm)].map(
      ([, id]) => id,
    );
    return files.filter((file) => file.startsWith("interface-") && !indexes.includes(file.split("-")[1] ?? ""));
  }

  test("a new pod is served at its interface, and so is another one with an interface of the same name", async () => {
    await expectServed(await addPod(newPod));
    await removePod();
    await expectServed(await addPod(`${newPod}2`));
    await expect.poll(stalePins, wait).toEqual([]);
    await removePod();
    await expect.poll(stalePins, wait).toEqual([]);
  });

  test("an interface that goes while no process runs leaves nothing after the next start", async () => {
    await addPod(`${newPod}3`);
    await expect.poll(() => foreign.atInterface(link), wait).toEqual(["packets"]);
    await backend.stop();
    await removePod();
    expect(await stalePins()).toHaveLength(1);
    await backend.restart();
    await expect.poll(stalePins, wait).toEqual([]);
  });

  test("a link that another program detaches from an interface is restored by the next check", async () => {
    args.splice(0, 2, "--drift-interval", "1s");
    await backend.restart();
    const agent = await addPod(`${newPod}4`);
    await expectServed(agent);
    const index = (await world.laboratory.run("n1", ["ip", "-o", "link", "show", link])).split(":")[0];
    const command = [process.execPath, damage, backend.bpfFolder, `link:interface-${index}`];
    await world.laboratory.run("n1", command);
    await expect.poll(() => foreign.atInterface(link), { ...wait, message: backend.log() }).toEqual(["packets"]);
    await expectServed(agent);
    await removePod();
  });
});
