import { programFile } from "../../process/program-file.ts";
import type { RunningBackend } from "../backends.ts";
import type { TwoNodes } from "../laboratory/two-nodes.ts";
import { type InstanceOptions, kpngProxy, type ProxyProgram } from "./kpng-proxy.ts";
import { nftablesOptions } from "./kube-proxy.ts";

const program = programFile("backend-userspace");

/** Starts kpng-userspace on n1, with a watcher. */
export function kpngUserspace(world: TwoNodes, instance: InstanceOptions = {}): Promise<RunningBackend> {
  const proxy: ProxyProgram = {
    proxy: "userspace",
    program,
    minSyncPeriod: "--userspace-min-sync-period",
    loseRules: async () => {
      await world.laboratory.run("n1", ["nft", "delete", "table", "ip", "kpng-user"]);
    },
    settingsOptions: nftablesOptions,
  };
  return kpngProxy(world, proxy, instance);
}
