import { programFile } from "../../process/program-file.ts";
import type { RunningBackend } from "../backends.ts";
import type { TwoNodes } from "../laboratory/two-nodes.ts";
import { flushServices } from "../nft-rules.ts";
import { type InstanceOptions, kpngProxy, type ProxyProgram } from "./kpng-proxy.ts";
import { nftablesOptions } from "./kube-proxy.ts";

const program = programFile("backend-nft");

/** Starts kpng-nft on n1, with a watcher. Node ports are served on all addresses, as the scenarios expect. */
export function kpngNft(world: TwoNodes, instance?: InstanceOptions): Promise<RunningBackend> {
  const proxy: ProxyProgram = {
    proxy: "nft",
    program,
    minSyncPeriod: "--nftables-min-sync-period",
    loseRules: () => flushServices(world, "kpng"),
    settingsOptions: nftablesOptions,
  };
  return kpngProxy(world, proxy, instance);
}
