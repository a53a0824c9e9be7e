import { readFile, writeFile } from "node:fs/promises";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { BackendError } from "../types/backend-error.ts";

/**
 * Allows routing of packets to and from 127.0.0.0/8, which node ports on localhost need. Only `GuardedSysctl` may set
 * it, because it is dangerous without rules that guard it.
 */
export const routeLocalnet = "net/ipv4/conf/all/route_localnet";

/** If it is not 0, conntrack marks only late resets as INVALID. Source: kernel nf_conntrack-sysctl. */
export const conntrackLiberal = "net/netfilter/nf_conntrack_tcp_be_liberal";

/**
 * Reads and writes numeric kernel settings of this machine, or of its network namespace. Each service proxy has one
 * (`ProxyHost.sysctls`); its root is the option `--proc-sys`.
 */
export class Sysctls {
  readonly #root: string;

  /** `root` is a path at which the machine's /proc/sys can be written to. */
  constructor(root = "/proc/sys") {
    this.#root = root;
  }

  /** *Shape of `name`:* `net/ipv4/ip_forward`. */
  pathOf(name: string): string {
    return `${this.#root}/${name}`;
  }

  /** Returns a setting; undefined if the kernel does not have it, e.g. before its module is loaded. */
  read(name: string): Promise<number | undefined> {
    return readSetting(this.pathOf(name));
  }

  /**
   * Gives a setting its value; writes nothing if it has it. Returns the value before, or undefined if it did not
   * change.
   *
   * Errors: SYSCTL_FAILED, e.g. in a container whose /proc/sys is read-only.
   */
  ensure(name: string, value: number): Promise<number | undefined> {
    return ensureSetting(this.pathOf(name), value);
  }
}

async function readSetting(path: string): Promise<number | undefined> {
  try {
    return Number((await readFile(path, "utf8")).trim());
  } catch {
    // A setting that cannot be read counts as absent; a later write fails with the reason.
    return undefined;
  }
}

/**
 * Gives a setting in a file of the kernel its value, or with `isMinimum` at least that value. Returns the value before,
 * or undefined if it did not change.
 *
 * Errors: SYSCTL_FAILED.
 */
export async function ensureSetting(path: string, value: number, isMinimum = false): Promise<number | undefined> {
  const before = await readSetting(path);
  if (before === value || (isMinimum && before !== undefined && before > value)) return undefined;
  try {
    await writeFile(path, String(value));
    return before ?? Number.NaN;
  } catch (cause) {
    throw new BackendError("SYSCTL_FAILED", `${path} cannot be set to ${value}`, { cause });
  }
}

/** Program that set a sysctl which rules must guard: kpng, or another program before it; "none" if it is not set. */
type SysctlGuard = "none" | "ours" | "others";

/** Options of {@link GuardedSysctl}. */
interface GuardedSysctlOptions {
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
 * sets it after a commit.
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
