import { type Log, reasonOf } from "@kpng/process/log.ts";
import { ensureSetting, type Sysctls } from "../sysctl/sysctls.ts";
import type { KernelSetting } from "./conntrack-settings.ts";

/** Options of {@link applySettings}. */
export interface ApplyOptions {
  readonly sysctls: Sysctls;
  readonly log: Log;
  /** Path of the size of conntrack's hash table. Default: the parameter of the kernel module. */
  readonly hashSizePath?: string | undefined;
}

/**
 * Writes the settings of `wantedSettings` that the kernel does not have yet, and sizes the hash table for a quarter of
 * the maximum number of flows.
 *
 * A setting that cannot be changed (/proc is read-only, or not the initial network namespace) is logged. Services work
 * without it.
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
    log.error("kernel setting not changed", { path, value, reason: reasonOf(error) });
  }
}
