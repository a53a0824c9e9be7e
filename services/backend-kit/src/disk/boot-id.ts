import { readFileSync } from "node:fs";

/**
 * Returns the identifier of the current boot of this machine; "" if it is unknown.
 *
 * `ViewKeeper` writes it into the saved view, so that `loadView` notices a reboot, after which the pods of this node
 * are gone. `RuleSets` reads it for the `RuleRecord` that is stored with the rules in the kernel. Separate, because
 * `disk/` and `proxy/` both need it.
 */
export function readBootId(): string {
  try {
    return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  } catch {
    // Without /proc, reboots are not noticed: "" always equals the saved "".
    return "";
  }
}
