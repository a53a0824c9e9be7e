import { existsSync } from "node:fs";
import { programFile } from "../../process/program-file.ts";
import { flushNat } from "../iptables-rules.ts";
import type { TwoNodes } from "../laboratory/two-nodes.ts";
import { type InstanceOptions, type KpngProxy, kpngProxy } from "./kpng-proxy.ts";
import { proxyOptions } from "./kube-proxy.ts";

const program = programFile("backend-iptables");

/** Our iptables backend, with control of its watcher. */
export type KpngIptables = KpngProxy;

/** Returns the reason why our backend cannot run here; undefined if it can. */
export function whyNoKpngIptables(): string | undefined {
  return existsSync(program) ? undefined : "services/backend-iptables has no main.ts yet";
}

/** Starts kpng-iptables on n1, with a watcher. */
export function kpngIptables(world: TwoNodes, instance: InstanceOptions = {}): Promise<KpngIptables> {
  const minSyncPeriod = "--iptables-min-sync-period";
  const loseRules = () => flushNat(world);
  const settingsOptions = proxyOptions;
  return kpngProxy(world, { proxy: "iptables", program, minSyncPeriod, settingsOptions, loseRules }, instance);
}
