import { checkPackets } from "@kpng/laboratory/check/check-packets.ts";
import type { CommandProxy } from "@kpng/laboratory/check/command-proxy.ts";
import { served, servedWays } from "@kpng/laboratory/check/served-state.ts";
import { Traffic } from "@kpng/laboratory/check/traffic.ts";
import type { TwoNodes } from "@kpng/laboratory/check/two-nodes.ts";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { kpngIptables, kpngNft } from "./backend/kpng-proxy.ts";
import { describePackets, describeVariants } from "./describe-packets.ts";
import { buildVariant, type IptablesVariant } from "./laboratory/legacy-tools.ts";

// Traffic takes most of two cores, so events take longer.
vi.setConfig({ testTimeout: 120_000 });

/** A backend under traffic. */
interface Continuous {
  readonly variant?: IptablesVariant;
  readonly start: (world: TwoNodes) => Promise<CommandProxy>;
  /** Shell commands of another program that change our rules, but not for the traffic. */
  readonly damage: readonly string[];
  /** Prints our rules, equal if they are the same. */
  readonly show: string;
}

function testContinuity({ variant, start, damage, show }: Continuous): void {
  let world: TwoNodes;
  let backend: CommandProxy;
  beforeAll(async () => {
    world = await buildVariant(variant);
    backend = await start(world);
  });
  afterAll(async () => {
    await backend?.close();
    await world?.close();
  });

  const shell = (command: string) => world.laboratory.run("n1", ["sh", "-ec", command]);

  test("while it repairs rules that were added, changed and deleted by others", async () => {
    await backend.start({}, served.state);
    const traffic = await Traffic.start(world, served.state, servedWays);
    const before = await shell(show);
    await shell(damage.join("\n"));
    // On a busy machine the interval of checks grows, because they use at most 5% of the time.
    for (const family of ["v4", "v6"]) {
      const isRepair = (line: string): boolean => line.includes("rules repaired") && line.includes(`"${family}"`);
      await expect.poll(() => backend.log().split("\n").some(isRepair), { timeout: 60_000 }).toBe(true);
    }
    await expect.poll(() => shell(show), { timeout: 60_000 }).toBe(before);
    expect(await checkPackets(world, served, backend.profile), backend.log()).toEqual([]);
    const { wrong, answeredProbes } = await traffic.end();
    expect(wrong, backend.log()).toEqual([]);
    expect(answeredProbes).toBeGreaterThan(0);
  });
}

describeVariants("traffic through kpng-iptables continues", (variant) =>
  testContinuity({
    variant,
    start: (world) => kpngIptables(world, { args: ["--iptables-sync-period", "200ms"] }),
    damage: ["iptables", "ip6tables"].flatMap((tool) => [
      `${tool} -t nat -A KPNG-SERVICES -d ${tool === "iptables" ? "9.9.9.9" : "2001:db8:9::9"} -j RETURN`,
      `${tool} -R KPNG-FORWARD 1 -j RETURN`,
      `${tool} -D FORWARD 1`,
      `${tool} -t nat -N KPNG-SVC-AAAAAAAAAAAAAAAA`,
    ]),
    show: "(iptables-save; ip6tables-save) | sed 's/ *\\[[0-9:]*\\]$//' | grep -v '^#' | sort",
  }),
);

describePackets("traffic through kpng-nft continues", () =>
  testContinuity({
    start: (world) => kpngNft(world, { args: ["--nftables-sync-period", "200ms"] }),
    damage: ["ip daddr 9.9.9.9", "ip6 daddr 2001:db8:9::9"].map(
      (match) => `nft insert rule ${match.split(" ")[0]} kpng services ${match} return`,
    ),
    show: "nft list chain ip kpng services; nft list chain ip6 kpng services",
  }),
);
