import { readFile, writeFile } from "node:fs/promises";
import { resolve } from "node:path";
import { BackendError } from "../types/backend-error.ts";

/**
 * Allows packets to and from 127.0.0.0/8 to be routed, which node ports on localhost require. Unless rules prevent it,
 * neighbouring hosts can then reach services on 127.0.0.1 (CVE-2020-8558).
 */
export const routeLocalnet = "net/ipv4/conf/all/route_localnet";

/**
 * If this setting is not 0, conntrack marks only out-of-window RST segments as INVALID. Source: kernel
 * nf_conntrack-sysctl.
 */
export const conntrackLiberal = "net/netfilter/nf_conntrack_tcp_be_liberal";

/** Reads and writes numeric kernel settings of this machine or of its network namespace. */
export class Sysctls {
  readonly #root: string;

  /** `root` is a path where the machine's /proc/sys is writable. */
  constructor(root = "/proc/sys") {
    this.#root = root;
  }

  /** *Shape of `name`:* `net/ipv4/ip_forward`, or the absolute path of a setting elsewhere. */
  pathOf(name: string): string {
    return resolve(this.#root, name);
  }

  /** Returns a setting; undefined if the kernel does not have it, e.g. before its module is loaded. */
  async read(name: string): Promise<number | undefined> {
    try {
      return Number((await readFile(this.pathOf(name), "utf8")).trim());
    } catch {
      // A later write fails with the reason.
      return undefined;
    }
  }

  /**
   * Sets a setting to `value`, or with `isMinimum` to at least `value`; writes nothing if the setting already complies.
   * Returns the previous value (NaN if it was unknown), or undefined if nothing was changed.
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
