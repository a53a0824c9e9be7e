import { test } from "vitest";
import { describePackets, describeVariants } from "./describe-packets.ts";
import { type KillOptions, killPoints, killRepeatedly, killSeed } from "./kill-points.ts";
import { useLegacyTools } from "./laboratory/legacy-tools.ts";

const points = killPoints(8);

describeVariants("kpng-iptables, killed at random moments", (variant) =>
  testKills(["to-iptables", "--iptables-min-sync-period", "0s"], variant === "legacy" ? useLegacyTools : undefined),
);

describePackets("kpng-nft, killed at random moments", () => testKills(["to-nft", "--nftables-min-sync-period", "0s"]));

function testKills(sink: readonly string[], prepare?: KillOptions["prepare"]): void {
  test(
    `${points} times, seed ${killSeed}: once it runs again, --diff finds no difference`,
    async () => {
      process.stdout.write(`${await killRepeatedly(sink, { points, serviceCount: 150, prepare })}\n`);
    },
    60_000 + points * 15_000,
  );
}
