import { readFile, writeFile } from "node:fs/promises";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import type { KernelSetting } from "./conntrack-settings.ts";

/** Where the kernel's settings are; a test has its own. */
export interface KernelPaths {
  readonly settings: string;
  readonly hashSize: string;
}

const kernelPaths: KernelPaths = {
  settings: "/proc/sys/net/netfilter",
  hashSize: "/sys/module/nf_conntrack/parameters/hashsize",
};

/**
 * Gives the kernel the settings that it does not have yet, and a hash table of a quarter of the room for flows at least.
 *
 * What cannot be set (a read-only /proc, a network namespace that is not the first) is logged; Services work without.
 */
export async function applySettings(
  settings: readonly KernelSetting[],
  log: Log,
  paths: KernelPaths = kernelPaths,
): Promise<void> {
  for (const { name, value, isMinimum } of settings) {
    await raise(`${paths.settings}/${name}`, value, isMinimum, log);
    if (name === "nf_conntrack_max") await raise(paths.hashSize, Math.floor(value / 4), true, log);
  }
}

async function raise(path: string, value: number, isMinimum: boolean, log: Log): Promise<void> {
  try {
    const before = Number(await readFile(path, "utf8"));
    if (before === value || (isMinimum && before > value)) return;
    await writeFile(path, String(value));
    log.info("kernel setting changed", { path, before, value });
  } catch (error) {
    log.error("kernel setting stays", { path, value, reason: reasonOf(error) });
  }
}
