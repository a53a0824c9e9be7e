import { test } from "vitest";
import { describePackets, describeVariants } from "./describe-packets.ts";
import { killPoints, killRepeatedly, killSeed, type Victim } from "./kill-points.ts";
import { useLegacyTools } from "./laboratory/legacy-tools.ts";
import { comparableRules, comparableTable } from "./rules.ts";

const points = killPoints(8);
const seed = killSeed;

describeVariants("kpng-iptables, killed at random moments", undefined, (variant) =>
  testKills({
    sink: ["to-iptables", "--iptables-min-sync-period", "0s", "--iptables-sync-period", "1s"],
    // All namespaces have the same files.
    prepare: async (laboratory, name) => {
      if (variant === "legacy" && name === "node") await useLegacyTools(laboratory, name);
    },
    rulesOf: async (laboratory, name) => {
      const tools = ["iptables-save", "ip6tables-save"];
      const [v4 = "", v6 = ""] = await Promise.all(tools.map((tool) => laboratory.run(name, [tool])));
      return comparableRules({ v4, v6 }, "KPNG-");
    },
  }),
);

describePackets("kpng-nft, killed at random moments", () =>
  testKills({
    sink: ["to-nft", "--nftables-min-sync-period", "0s", "--nftables-sync-period", "1s"],
    rulesOf: async (laboratory, name) => {
      // A kill may come before the table is made.
      const list = (ip: string) => ["sh", "-c", `nft list table ${ip} kpng 2>/dev/null || true`];
      const listings = await Promise.all(["ip", "ip6"].map((ip) => laboratory.run(name, list(ip))));
      return listings.flatMap(comparableTable);
    },
  }),
);

function testKills(victim: Victim): void {
  test(
    `${points} times, seed ${seed}: once it runs again, the rules are those of an undisturbed run`,
    async () => {
      process.stdout.write(`${await killRepeatedly(victim, { points, seed, serviceCount: 150, stateCount: 4 })}\n`);
    },
    60_000 + points * 15_000,
  );
}
