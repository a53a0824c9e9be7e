import { type Log, reasonOf } from "@kpng/process/log.ts";
import type { Sysctls } from "./sysctls.ts";

/** Program that set a sysctl which rules must guard: kpng, or another program before it; "none" if it is not set. */
export type SysctlGuard = "none" | "ours" | "others";

/** Options of {@link GuardedSysctl}. */
export interface GuardedSysctlOptions {
  readonly sysctls: Sysctls;
  /** *Shape:* `net/ipv4/conf/all/route_localnet`. */
  readonly name: string;
  readonly isWanted: boolean;
  /** Whether an installed rule records that kpng set the sysctl. */
  readonly isRecorded: () => Promise<boolean>;
  /** For a run that prints or compares rules: nothing on the node is changed. */
  readonly isReadOnly: boolean;
  readonly log: Log;
  /** Log message if the sysctl cannot be set. */
  readonly onNotSet: string;
  /** Log message if the sysctl cannot be reset. */
  readonly onNotReset: string;
}

/**
 * A sysctl, set to 1, that would be dangerous without rules that guard it: `route_localnet`, which lets neighbours
 * reach 127.0.0.1 (CVE-2020-8558). `openRouteLocalnet` of backend-iptables opens it with the rules, and `FamilyRules`
 * sets it after a commit. Separate from `Sysctls`, whose other settings need no guard.
 *
 * It is set after the guard is committed and reset before the guard is removed. Whether kpng set it is recorded where
 * it is lost together with the sysctl, at a reboot: in the guard itself. A sysctl that another program set is left
 * alone.
 */
export class GuardedSysctl {
  /** The guard that the rules must contain. */
  readonly guard: SysctlGuard;
  readonly #options: GuardedSysctlOptions;
  #isDone: boolean;

  private constructor(guard: SysctlGuard, options: GuardedSysctlOptions) {
    this.guard = guard;
    this.#options = options;
    this.#isDone = !options.isWanted || options.isReadOnly;
  }

  /**
   * Finds out which guard the node needs. If the sysctl is not wanted but kpng set it earlier, it is reset first; where
   * that fails, the guard stays.
   */
  static async open(options: GuardedSysctlOptions): Promise<GuardedSysctl> {
    const { sysctls, name, isWanted, isReadOnly, log, onNotReset } = options;
    if (isReadOnly && !isWanted) return new GuardedSysctl("none", options);
    const isSet = ((await sysctls.read(name)) ?? 0) !== 0;
    const isOurs = !isSet || (await options.isRecorded());
    if (isWanted) return new GuardedSysctl(isOurs ? "ours" : "others", options);
    if (!isOurs || !isSet) return new GuardedSysctl("none", options);
    try {
      await sysctls.ensure(name, 0);
      return new GuardedSysctl("none", options);
    } catch (error) {
      log.error(onNotReset, { reason: reasonOf(error) });
      return new GuardedSysctl("ours", options);
    }
  }

  /** Sets the sysctl if it is wanted. Call it when the guard is in force. Never rejects. */
  async afterCommit(): Promise<void> {
    if (this.#isDone) return;
    this.#isDone = true;
    const { sysctls, name, log, onNotSet } = this.#options;
    await sysctls.ensure(name, 1).catch((error: unknown) => log.error(onNotSet, { reason: reasonOf(error) }));
  }
}
