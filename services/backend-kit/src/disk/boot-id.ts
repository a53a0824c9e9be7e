import { readFileSync } from "node:fs";

/**
 * Returns the identifier of the current boot of this machine; "" if it is unknown. A saved view contains it, so that
 * `loadView` notices a reboot, after which the pods of this node are gone.
 */
export function readBootId(): string {
  try {
    return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  } catch {
    // Without /proc, reboots are not noticed: "" always equals the saved "".
    return "";
  }
}
