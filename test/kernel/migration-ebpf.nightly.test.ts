import { kpngEbpf, kpngIptables, kpngNft } from "./backend/kpng-proxy.ts";
import { describeBpf } from "./describe-bpf.ts";
import { kubeProxies, testMigrations } from "./describe-migration.ts";

const other = { name: "other", firstMarkerPort: 20_000 };

describeBpf(`a node moves to kpng-ebpf and back`, () => {
  testMigrations(
    {
      name: "kpng-ebpf",
      start: (world) => kpngEbpf(world, { firstMarkerPort: 30_000 }),
      isInstalled: async ({ laboratory }) =>
        (await laboratory.run("n1", ["nft", "list", "tables"])).includes("table ip kpng-ebpf\n"),
      // Sockets of the node do not know what conntrack chose for their datagrams, nor conntrack what they chose.
      mayMove: /^v[46] udp (a|n1) → clusterIP of web port 80: went to [bc], now to [bc]$/,
    },
    [
      ...kubeProxies,
      { name: "kpng-nft", start: (world) => kpngNft(world, other) },
      { name: "kpng-iptables", start: (world) => kpngIptables(world, other) },
    ],
  );
});
