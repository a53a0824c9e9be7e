import { Traffic, type TrafficOptions } from "@kpng/laboratory/check/traffic.ts";
import { web } from "@kpng/laboratory/scenario/build.ts";
import { balancer, everywhere, inside, nodePort } from "@kpng/laboratory/scenario/everywhere.ts";
import { addressOf, clusterIP, n1, pod } from "@kpng/laboratory/scenario/packet.ts";
import { beforeAll, expect, test } from "vitest";
import { kpngEbpf } from "./backend/kpng-proxy.ts";
import { describeBpf } from "./describe-bpf.ts";
import { useProxy } from "./use-proxy.ts";

describeBpf(`traffic through kpng-ebpf continues`, () => {
  const args: string[] = ["--nftables-sync-period", "1s"];
  const both = web(everywhere, ["b", "c"]);
  const ways = [inside, nodePort, balancer, { from: n1, to: clusterIP("web"), port: 80 }];

  const { world, proxy: backend } = useProxy((nodes) => kpngEbpf(nodes, { args }));
  beforeAll(() => backend().start({}, both));

  /** Runs something beside traffic, which must not be affected. */
  async function expectUnnoticed(event: () => Promise<unknown>, options: TrafficOptions = {}): Promise<void> {
    const traffic = await Traffic.start(world(), both, ways, options);
    await event();
    const { wrong, answeredProbes } = await traffic.end();
    expect(wrong, backend().log()).toEqual([]);
    expect(answeredProbes).toBeGreaterThan(0);
  }

  /** Files of pinned maps and links. */
  async function pins(): Promise<readonly string[]> {
    const script = 'find "$0"/bpf/kpng-ebpf -type f 2>/dev/null || true';
    const found = await world().laboratory.run("n1", ["sh", "-c", script, world().laboratory.folder]);
    return found.split("\n").filter(Boolean).sort();
  }

  test("through maps of another size, which replace the old ones together with the programs", async () => {
    const before = await pins();
    args.push("--max-endpoints", "100000");
    await expectUnnoticed(() => backend().restart());
    const after = await pins();
    expect(after).toHaveLength(before.length);
    expect(after).not.toEqual(before);
  });

  test.each(["0.0.0.0", "::"])("a pod that connects to %s means itself, also at a node port", async (address) => {
    const agent = world().agentOf(pod("a"));
    const answer = await agent.askOnce({ protocol: "tcp", address, port: nodePort.port, timeoutMs: 30_000 });
    expect(answer).toEqual({ kind: "refused" });
  });

  test("a check restores programs and pins that another program removed", { timeout: 120_000 }, async () => {
    const before = await pins();
    await backend().loseRules();
    await expect.poll(pins, { timeout: 60_000 }).toEqual(before);
    const target = { address: addressOf(both, inside.to, "v4"), port: inside.port, name: "b", timeoutMs: 30_000 };
    const agent = world().agentOf(pod("a"));
    expect(await agent.call("awaitName", target), backend().log()).toBe(true);
  });

  test("while sets of endpoints are replaced", () =>
    expectUnnoticed(
      async () => {
        for (let round = 0; round < 3; round++) {
          await backend().apply(web(everywhere, ["b", "c", "d"]));
          await backend().apply(both);
        }
      },
      { resendsDatagrams: true },
    ));
});
