import { readFileSync } from "node:fs";

/**
 * Returns the identifier of the current boot of this machine; "" if it is unknown. A saved view contains it, so that
 * `loadView` notices a reboot, after which the pods of this node are gone. The record that rule sets store with their
 * rules contains it, too. A file of its own, because `disk/` and `proxy/` both need it.
 */
export function readBootId(): string {
  try {
    return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  } catch {
    // Without /proc, reboots are not noticed: "" always equals the saved "".
    return "";
  }
}
