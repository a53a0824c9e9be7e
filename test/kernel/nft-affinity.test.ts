import { web } from "@kpng/laboratory/scenario/build.ts";
import { addressOf, clusterIP, outside } from "@kpng/laboratory/scenario/packet.ts";
import { crowdAddresses, type HostName } from "@kpng/laboratory/scenario/places.ts";
import { beforeAll, expect, test } from "vitest";
import { until } from "../cluster/until.ts";
import { kpngNft } from "./backend/kpng-proxy.ts";
import { describePackets } from "./describe-packets.ts";
import { useProxy } from "./use-proxy.ts";

const maxClients = 3;
const ports = [{ port: 80 }];
const stateOf = (hosts: readonly HostName[], affinitySeconds = 600) => web({ ports, affinitySeconds }, hosts);

describePackets(`affinity of kpng-nft with room for ${maxClients} clients`, () => {
  const args = ["--max-affinity-clients", String(maxClients)];
  const { world, proxy: backend } = useProxy((nodes) => kpngNft(nodes, { args }));
  beforeAll(() => backend().start({}, stateOf(["b", "c"])));

  /** Returns which host answers each client, one connection after the other. */
  async function hostsOf(clients: readonly string[]): Promise<readonly string[]> {
    const address = addressOf(stateOf([]), clusterIP("web"), "v4");
    const agent = world().agentOf(outside);
    const found: string[] = [];
    for (const from of clients) {
      const answer = await agent.askOnce({ protocol: "tcp", address, port: 80, from, timeoutMs: 10_000 });
      found.push(answer.kind === "answer" ? answer.name : answer.kind);
    }
    return found;
  }

  const clients = crowdAddresses.map(({ v4 }) => v4);
  const [known, others] = [clients.slice(0, maxClients), clients.slice(maxClients)];

  /** Returns whether the kernel remembers all of these clients. */
  async function remembers(addresses: readonly string[]): Promise<boolean> {
    const maps = await world().laboratory.run("n1", ["nft", "list", "maps", "ip"]);
    const [remembered = ""] = /map clients_.*?\n\t\}/s.exec(maps) ?? [];
    return addresses.every((address) => remembered.includes(`${address} timeout`));
  }

  test("clients beyond the limit are balanced and not remembered; those before keep their endpoint", async () => {
    const before = await hostsOf(known);
    expect(await remembers(known)).toBe(true);
    const seen = new Set(await hostsOf([...others, ...others, ...others]));
    expect(await remembers([others[0] ?? ""])).toBe(false);
    expect([...seen].sort()).toEqual(["b", "c"]);
    for (let round = 0; round < 4; round++) expect(await hostsOf(known)).toEqual(before);
  });

  test("remembered clients keep their endpoint over a kill, a restart and a changed timeout", async () => {
    const before = await hostsOf(known);
    await backend().restart("SIGKILL");
    expect(await hostsOf(known)).toEqual(before);
    await backend().apply(stateOf(["b", "c"], 900));
    expect(await hostsOf(known)).toEqual(before);
    const maps = await world().laboratory.run("n1", ["nft", "list", "maps", "ip"]);
    // nft prints the timeout of the map's element as it was first, and the time that is left.
    expect(maps).toMatch(/expires 14m5\ds/);
    await backend().apply(stateOf(["a", "b", "c"]));
    expect(await hostsOf(known)).toEqual(before);
  });

  test("clients of a removed endpoint get another one at once and keep it, also when the first comes back", async () => {
    await backend().apply(stateOf(["b"]));
    // The kernel collects the place of a deleted element of a full map within seconds; only then it can be used again.
    const isRemembered = async (): Promise<boolean> => {
      expect(new Set(await hostsOf(known))).toEqual(new Set(["b"]));
      return remembers(known);
    };
    await until("all known clients are remembered again", isRemembered, 30_000);
    await backend().apply(stateOf(["b", "c"]));
    expect(new Set(await hostsOf(known))).toEqual(new Set(["b"]));
  });
});
