import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { type Actual, readActual } from "./rules.ts";
import type { Family } from "./wanted.ts";

/** A tool that is missing, timed out or failed; the message contains the tool's output. */
export class KernelError extends Error {}

/**
 * The tools of the iptables variant on the PATH. Both variants, nf_tables and legacy, commit a table as a whole.
 *
 * `--wait` is for the lock of the legacy variant; kube-proxy waits as long.
 */
const tools = {
  v4: { save: "iptables-save", restore: "iptables-restore" },
  v6: { save: "ip6tables-save", restore: "ip6tables-restore" },
} as const;

export const restoreArguments = ["--noflush", "--wait=5"] as const;

export function restoreCommand(family: Family): string {
  return [tools[family].restore, ...restoreArguments].join(" ");
}

/** Returns whether this node has the family. A kernel without IPv6 has no table to read. */
export function hasFamily(family: Family): boolean {
  return family === "v4" || existsSync("/proc/net/if_inet6");
}

/** Reads our part of the family's nat table. Errors: KernelError. */
export function readKernel(family: Family): Actual {
  return readActual(run(tools[family].save, ["-t", "nat"]));
}

/** Commits one transaction. Errors: KernelError; the rules are then unchanged. */
export function commit(family: Family, transaction: string): void {
  run(tools[family].restore, restoreArguments, transaction);
}

/**
 * Deletes flows if `conntrack` is installed. Without it they expire by themselves (UDP 30 to 120 s after the last
 * packet).
 *
 * The exit status is ignored: it is 1 if no flow matched.
 */
export function forgetFlows(calls: readonly (readonly string[])[]): void {
  for (const call of calls) spawnSync("conntrack", [...call], { stdio: "ignore", timeout: timeoutMs });
}

const timeoutMs = 10_000;

function run(tool: string, options: readonly string[], input = ""): string {
  const result = spawnSync(tool, [...options], { input, encoding: "utf8", timeout: timeoutMs, maxBuffer: 64 << 20 });
  if (result.error !== undefined) throw new KernelError(`${tool} cannot be run: ${result.error.message}`);
  if (result.status !== 0) throw new KernelError(`${tool} failed (exit ${result.status}): ${result.stderr.trim()}`);
  return result.stdout;
}
