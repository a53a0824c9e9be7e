import { checkPackets } from "@kpng/laboratory/check/check-packets.ts";
import type { CommandProxy } from "@kpng/laboratory/check/command-proxy.ts";
import { served, servedWays } from "@kpng/laboratory/check/served-state.ts";
import { Traffic } from "@kpng/laboratory/check/traffic.ts";
import type { TwoNodes } from "@kpng/laboratory/check/two-nodes.ts";
import { named, type State, together } from "@kpng/laboratory/scenario/build.ts";
import { makePick, makeRandom, makeRandomBelow } from "@kpng/process/random.ts";
import { expect, test } from "vitest";
import { kpngIptables, kpngNft } from "./backend/kpng-proxy.ts";
import { describePackets } from "./describe-packets.ts";
import { buildVariant, type IptablesVariant, whyNoLegacy } from "./laboratory/legacy-tools.ts";

/** Duration of the changes for each subject; `npm run soak -- 30` sets half an hour for all together. */
const seconds = Number(process.env.SOAK_SECONDS ?? 20);
const seed = Number(process.env.SOAK_SEED ?? Date.now() % 1_000_000);

/** Far more than a heap grows between two collections, and less than a leak of each change in half an hour. */
const mostGrowthMiB = 60;

const metricsAddress = "127.0.0.1:10249";
const metrics = ["--metrics-bind-address", metricsAddress];

/** A backend under a soak. */
interface Subject {
  /** Default "nft". */
  readonly variant?: IptablesVariant;
  readonly start: (world: TwoNodes) => Promise<CommandProxy>;
  /** Edits of the tables by another program that the traffic does not notice. */
  readonly edits: readonly string[];
  /** Edits that break rules, tried after the traffic. */
  readonly damage: readonly string[];
  /** Prints everything that is ours, an element a line. */
  readonly show: string;
}

const theirTable =
  "nft 'add table ip theirs; add chain ip theirs out { type nat hook output priority -110; }; add rule ip theirs out ip daddr 198.18.0.1 dnat to 198.18.0.2'";
const theirRule = "FORWARD -s 198.18.0.1 -j DROP";
const theirEdits = [theirTable, "nft delete table ip theirs 2>&1 || true"];

const iptables: Subject = {
  start: (world) => kpngIptables(world, { args: ["--iptables-sync-period", "1s", ...metrics] }),
  edits: [
    ...theirEdits,
    "iptables -w 5 -t nat -A KPNG-SERVICES -d 9.9.9.9 -j RETURN",
    "ip6tables -w 5 -t nat -A KPNG-SERVICES -d 2001:db8:9::9 -j RETURN",
    "iptables -w 5 -R KPNG-FORWARD 1 -j RETURN",
    "iptables -w 5 -t nat -N KPNG-SVC-AAAAAAAAAAAAAAAA 2>&1 || true",
  ],
  damage: [
    "for c in $(iptables-save -t nat | grep -o '^:KPNG-SVC-[^ ]*' | tr -d :); do iptables -w 5 -t nat -F $c; done",
    "iptables -w 5 -F KPNG-FORWARD",
    "ip6tables -w 5 -t nat -F; ip6tables -w 5 -t nat -X",
  ],
  show: "(iptables-save; ip6tables-save) | grep KPNG",
};

const subjects: Readonly<Record<string, Subject>> = {
  "kpng-iptables": iptables,
  ...(whyNoLegacy() === undefined ? { "kpng-iptables with iptables-legacy": { ...iptables, variant: "legacy" } } : {}),
  "kpng-nft": {
    start: (world) => kpngNft(world, { args: ["--nftables-sync-period", "1s", ...metrics] }),
    edits: [
      ...theirEdits,
      "nft insert rule ip kpng services ip daddr 9.9.9.9 return",
      "nft insert rule ip6 kpng services ip6 daddr 2001:db8:9::9 return",
    ],
    damage: ["nft flush map ip kpng slots", "nft flush chain ip kpng services", "nft flush chain ip6 kpng services"],
    show: "(nft list table ip kpng; nft list table ip6 kpng) | tr ',' '\\n'",
  },
};

describePackets("minutes of changes, traffic, and edits by another program", () => {
  test.each(Object.entries(subjects))(
    "leave %s with its rules, and without more memory",
    {
      timeout: (seconds + 300) * 1_000,
    },
    async (name, { variant, start, edits, damage, show }) => {
      process.stdout.write(`${name}: SOAK_SEED=${seed}\n`);
      const random = makeRandom(seed);
      const [below, pick] = [makeRandomBelow(random), makePick(random)];
      const world = await buildVariant(variant);
      const backend = await start(world);
      const shell = (command: string) => world.laboratory.run("n1", ["sh", "-c", command]);
      const size = async (): Promise<number> => (await shell(show)).split("\n").length;
      const memoryMiB = async (): Promise<number> => {
        const text = await shell(`curl --silent ${metricsAddress}/metrics`);
        return Number(/^process_resident_memory_bytes (\d+)/m.exec(text)?.[1]) / 2 ** 20;
      };
      try {
        await shell(`iptables -A ${theirRule}`);
        await backend.start({}, served.state);
        // What is made once for each number of endpoints stays.
        await backend.apply(together(served.state, named("four", { number: 99 }, ["a", "b", "c", "d"])));
        await backend.apply(served.state);
        const before = await size();
        const traffic = await Traffic.start(world, served.state, servedWays);
        const endMs = performance.now() + seconds * 1_000;
        const middleMs = endMs - seconds * 500;
        let [changes, memory] = [0, Number.NaN];
        while (performance.now() < endMs) {
          await backend.apply(together(served.state, ...randomServices(below, pick)));
          if (below(3) === 0) await shell(pick(...edits));
          if (Number.isNaN(memory) && performance.now() > middleMs) memory = await memoryMiB();
          changes++;
        }
        const { wrong, answeredProbes } = await traffic.end();
        expect(wrong, `SOAK_SEED=${seed}`).toEqual([]);
        const grownMiB = (await memoryMiB()) - memory;
        process.stdout.write(
          `${name}: ${changes} changes, ${answeredProbes} connections, ${grownMiB.toFixed()} MiB more\n`,
        );
        expect(grownMiB).toBeLessThan(mostGrowthMiB);

        await backend.apply(served.state);
        for (const command of damage) {
          await shell(command);
          await expect.poll(size, { timeout: 60_000 }).toBe(before);
        }
        expect(await checkPackets(world, served, backend.profile)).toEqual([]);
        await shell(`iptables -C ${theirRule}`);
      } finally {
        await backend.close();
        await world.close();
      }
    },
  );
});

/** Returns some of 40 Services, each with some endpoints. */
function randomServices(below: (limit: number) => number, pick: ReturnType<typeof makePick>): readonly State[] {
  return Array.from({ length: 40 }, (_, at) => at)
    .filter(() => below(4) > 0)
    .map((at) => {
      const ports = [{ port: 80, ...(at % 5 === 0 ? { nodePort: 31_100 + at } : {}) }];
      const endpoints = (["a", "b", "c", "d"] as const).filter(() => below(2) === 0);
      return named(`s${at}`, { number: 100 + at, ports, external: pick("Cluster", "Local") }, endpoints);
    });
}
