import { programFile } from "../../process/program-file.ts";
import { flushNat } from "../iptables-rules.ts";
import type { TwoNodes } from "../laboratory/two-nodes.ts";
import { type InstanceOptions, type KpngProxy, kpngProxy } from "./kpng-proxy.ts";
import { proxyOptions } from "./kube-proxy.ts";

/** Starts kpng-ipvs on n1, with a watcher. It needs a kernel with IPVS, as that of a guest. */
export function kpngIpvs(world: TwoNodes, instance?: InstanceOptions): Promise<KpngProxy> {
  const proxy = {
    proxy: "ipvs",
    program: programFile("backend-ipvs"),
    minSyncPeriod: "--ipvs-min-sync-period",
    loseRules: () => flushNat(world),
    settingsOptions: proxyOptions,
  } as const;
  return kpngProxy(world, proxy, instance);
}
