import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { type Actual, readActual } from "./rules.ts";
import type { Family } from "./wanted.ts";

/** A tool that is missing, did not answer, or refused; the message has the tool's own words. */
export class KernelError extends Error {}

/**
 * The variant of iptables is the one on PATH; the nf_tables and the legacy one both commit a table as a whole.
 *
 * `--wait` is for the legacy one, which others on the node lock; kube-proxy waits as long.
 */
const tools = {
  v4: { save: "iptables-save", restore: "iptables-restore" },
  v6: { save: "ip6tables-save", restore: "ip6tables-restore" },
} as const;

export const restoreArguments = ["--noflush", "--wait=5"] as const;

export function restoreCommand(family: Family): string {
  return [tools[family].restore, ...restoreArguments].join(" ");
}

/** Returns whether this node has the family at all: a kernel without IPv6 has no rules of ours, and no table to ask. */
export function hasFamily(family: Family): boolean {
  return family === "v4" || existsSync("/proc/net/if_inet6");
}

/** Reads our part of the family's nat table. Errors: KernelError. */
export function readKernel(family: Family): Actual {
  return readActual(run(tools[family].save, ["-t", "nat"]));
}

/** Hands one transaction to the kernel. Errors: KernelError, and the rules are as before. */
export function commit(family: Family, transaction: string): void {
  run(tools[family].restore, restoreArguments, transaction);
}

/**
 * Makes the kernel forget flows, where `conntrack` is installed; without it they end by their own timeouts (UDP 30 to
 * 120 s after the last packet).
 *
 * The exit code is not looked at: it is 1 when no flow matched.
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
