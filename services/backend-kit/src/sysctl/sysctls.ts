import { readFile, writeFile } from "node:fs/promises";
import { resolve } from "node:path";
import { BackendError } from "../types/backend-error.ts";

/**
 * Allows routing of packets to and from 127.0.0.0/8, which node ports on localhost need. Without rules that guard it,
 * neighbours reach services on 127.0.0.1 (CVE-2020-8558).
 */
export const routeLocalnet = "net/ipv4/conf/all/route_localnet";

/** If it is not 0, conntrack marks only late resets as INVALID. Source: kernel nf_conntrack-sysctl. */
export const conntrackLiberal = "net/netfilter/nf_conntrack_tcp_be_liberal";

/** Reads and writes numeric kernel settings of this machine, or of its network namespace. */
export class Sysctls {
  readonly #root: string;

  /** `root` is a path at which the machine's /proc/sys can be written to. */
  constructor(root = "/proc/sys") {
    this.#root = root;
  }

  /** *Shape of `name`:* `net/ipv4/ip_forward`; or an absolute path of a setting elsewhere. */
  pathOf(name: string): string {
    return resolve(this.#root, name);
  }

  /** Returns a setting; undefined if the kernel does not have it, e.g. before its module is loaded. */
  async read(name: string): Promise<number | undefined> {
    try {
      return Number((await readFile(this.pathOf(name), "utf8")).trim());
    } catch {
      // A setting that cannot be read counts as absent; a later write fails with the reason.
      return undefined;
    }
  }

  /**
   * Gives a setting its value, or with `isMinimum` at least that value; writes nothing if it has it. Returns the value
   * before, or undefined if it did not change.
   *
   * Errors: SYSCTL_FAILED, e.g. in a container whose /proc/sys is read-only.
   */
  async ensure(name: string, value: number, isMinimum = false): Promise<number | undefined> {
    const before = await this.read(name);
    if (before === value || (isMinimum && before !== undefined && before > value)) return undefined;
    const path = this.pathOf(name);
    try {
      await writeFile(path, String(value));
      return before ?? Number.NaN;
    } catch (cause) {
      throw new BackendError("SYSCTL_FAILED", `${path} cannot be set to ${value}`, { cause });
    }
  }
}
