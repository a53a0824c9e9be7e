import { type Log, reasonOf } from "@kpng/process/log.ts";
import { ensureSetting, type Sysctls } from "../sysctl/sysctls.ts";
import type { KernelSetting } from "./conntrack-settings.ts";

export interface ApplyOptions {
  readonly sysctls: Sysctls;
  readonly log: Log;
  /** Default: the parameter of the kernel's module. */
  readonly hashSizePath?: string | undefined;
}

/**
 * Gives the kernel the settings that it does not have yet, and a hash table of at least a quarter of the room for
 * flows.
 *
 * A setting that cannot be changed (a read-only /proc, a network namespace that is not the first) is logged; Services
 * work without it.
 */
export async function applySettings(settings: readonly KernelSetting[], options: ApplyOptions): Promise<void> {
  const { sysctls, log, hashSizePath = "/sys/module/nf_conntrack/parameters/hashsize" } = options;
  for (const { name, value, isMinimum } of settings) {
    await ensure(sysctls.pathOf(name), value, isMinimum, log);
    if (name.endsWith("/nf_conntrack_max")) await ensure(hashSizePath, Math.floor(value / 4), true, log);
  }
}

async function ensure(path: string, value: number, isMinimum: boolean, log: Log): Promise<void> {
  try {
    const before = await ensureSetting(path, value, isMinimum);
    if (before !== undefined) log.info("kernel setting changed", { path, before, value });
  } catch (error) {
    log.error("kernel setting stays", { path, value, reason: reasonOf(error) });
  }
}
