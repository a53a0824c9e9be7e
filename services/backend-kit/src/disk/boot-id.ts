import { readFileSync } from "node:fs";

/** Returns what tells this run of the kernel from all others; "" where the kernel does not say. */
export function readBootId(): string {
  try {
    return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  } catch {
    // Without /proc a reboot cannot be noticed, and "" never differs.
    return "";
  }
}
