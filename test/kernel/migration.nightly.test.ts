import { kpngIptables } from "./backend/kpng-proxy.ts";
import { kubeProxies, testMigrations } from "./describe-migration.ts";
import { describeVariants } from "./describe-packets.ts";

describeVariants("a node moves to kpng-iptables and back", (variant) => {
  testMigrations(
    {
      name: "kpng-iptables",
      variant,
      start: (world) => kpngIptables(world, { firstMarkerPort: 30_000 }),
      isInstalled: async (world) => (await world.laboratory.run("n1", ["iptables-save"])).includes("KPNG-"),
    },
    kubeProxies.filter(({ name }) => name.includes("iptables")),
  );
});
