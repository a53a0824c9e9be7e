import { fileURLToPath } from "node:url";
import type { RunningBackend } from "../backends.ts";
import type { TwoNodes } from "../laboratory/two-nodes.ts";
import { kpngProxy } from "./kpng-proxy.ts";
import { proxyOptions } from "./kube-proxy.ts";

const program = fileURLToPath(new URL("../../../services/backend-nft/src/main.ts", import.meta.url));

/** Starts kpng-nft on n1, with a watcher. Node ports are served on all addresses, as the scenarios expect. */
export function kpngNft(world: TwoNodes): Promise<RunningBackend> {
  return kpngProxy(world, {
    proxy: "nft",
    program,
    minSyncPeriod: "--nftables-min-sync-period",
    // Without any rule that uses connection tracking, the kernel would stop tracking and translating back.
    loseRules: async () => {
      for (const ip of ["ip", "ip6"])
        await world.laboratory.run("n1", ["nft", "flush", "chain", ip, "kpng", "services"]);
    },
    settingsOptions: (settings) => {
      const { nodePortAddresses = ["0.0.0.0/0", "::/0"] } = settings;
      return proxyOptions({ ...settings, nodePortAddresses, localhostNodePorts: true });
    },
  });
}
