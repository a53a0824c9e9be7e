import { readFile, writeFile } from "node:fs/promises";
import { BackendIptablesError } from "../iptables-error.ts";

/** Lets what is sent to 127.0.0.0/8 be routed: without it a node port on localhost cannot leave the node. */
export const routeLocalnet = "net/ipv4/conf/all/route_localnet";

/** Not 0: conntrack calls only late resets INVALID. Source: kernel nf_conntrack-sysctl. */
export const conntrackLiberal = "net/netfilter/nf_conntrack_tcp_be_liberal";

/** Returns a setting of the kernel; undefined if it has none of that name, e.g. before its module is loaded. */
export async function readSysctl(path: string): Promise<number | undefined> {
  try {
    return Number((await readFile(`/proc/sys/${path}`, "utf8")).trim());
  } catch {
    // Absent is the answer that was asked for.
    return undefined;
  }
}

/**
 * Gives a setting of the kernel a value; writes nothing if it has it.
 *
 * Errors: SYSCTL_FAILED, e.g. in a container whose /proc/sys is read-only.
 */
export async function ensureSysctl(path: string, value: number): Promise<void> {
  if ((await readSysctl(path)) === value) return;
  try {
    await writeFile(`/proc/sys/${path}`, String(value));
  } catch (cause) {
    const name = path.replaceAll("/", ".");
    throw new BackendIptablesError("SYSCTL_FAILED", `${name} cannot be set to ${value}`, { cause });
  }
}
