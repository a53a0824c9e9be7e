import { kpngIptables, kpngNft } from "./backend/kpng-proxy.ts";
import { kubeProxies, testMigrations } from "./describe-migration.ts";
import { describePackets } from "./describe-packets.ts";

describePackets("a node moves to kpng-nft and back", () => {
  testMigrations(
    {
      name: "kpng-nft",
      start: (world) => kpngNft(world, { firstMarkerPort: 30_000 }),
      isInstalled: async ({ laboratory }) =>
        (await laboratory.run("n1", ["nft", "list", "tables"])).includes("table ip kpng\n"),
    },
    [
      ...kubeProxies,
      { name: "kpng-iptables", start: (world) => kpngIptables(world, { name: "other", firstMarkerPort: 20_000 }) },
    ],
  );
});
