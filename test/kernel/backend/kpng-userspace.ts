import { fileURLToPath } from "node:url";
import type { RunningBackend } from "../backends.ts";
import type { TwoNodes } from "../laboratory/two-nodes.ts";
import { type InstanceOptions, kpngProxy, type ProxyProgram } from "./kpng-proxy.ts";
import { nftablesOptions } from "./kube-proxy.ts";

const program = fileURLToPath(new URL("../../../services/backend-userspace/src/main.ts", import.meta.url));

/** Starts kpng-userspace on n1, with a watcher. */
export function kpngUserspace(
  world: TwoNodes,
  entry: "redirect" | "address",
  instance: InstanceOptions = {},
): Promise<RunningBackend> {
  const proxy: ProxyProgram = {
    proxy: entry === "redirect" ? "userspace" : "userspace-address",
    program,
    minSyncPeriod: "--userspace-min-sync-period",
    loseRules: async () => {
      // The table of one family; the interface has both.
      const command = entry === "redirect" ? "nft delete table ip kpng-user" : "ip link delete kpng-user";
      await world.laboratory.run("n1", ["sh", "-c", command]);
    },
    settingsOptions: nftablesOptions,
  };
  const own = entry === "address" ? ["--entry", entry, "--address-external-ips"] : ["--entry", entry];
  return kpngProxy(world, proxy, { ...instance, args: [...own, ...(instance.args ?? [])] });
}
