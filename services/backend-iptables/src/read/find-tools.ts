import { existsSync } from "node:fs";
import type { Family } from "@kpng/model/address.ts";
import { BackendIptablesError } from "./iptables-error.ts";
import type { RunTool } from "./run-tool.ts";

/** Which of the two kernel mechanisms the tools write to. Rules of one are invisible to the tools of the other. */
export type Variant = "nft" | "legacy";

/** The tools of one family. */
export interface Tools {
  readonly family: Family;
  readonly save: string;
  readonly restore: string;
  /** *Shape:* `1.8.9`. */
  readonly version: string;
  readonly variant: Variant;
}

/** The first version whose iptables-restore waits for the lock, and that knows `--random-fully`. */
const minVersion = [1, 6, 2] as const;

/** Time for a tool that only says its version. */
const timeoutMs = 10_000;

/**
 * Returns the tools of a family, or why this machine cannot have rules in it (IPv6 switched off).
 *
 * Errors: IPTABLES_MISSING, IPTABLES_TOO_OLD.
 */
export async function findTools(
  family: Family,
  wanted: Variant | "auto",
  run: RunTool,
): Promise<Tools | { readonly missing: string }> {
  if (family === "v6" && !existsSync("/proc/net/if_inet6")) return { missing: "the kernel has no IPv6" };
  const base = family === "v4" ? "iptables" : "ip6tables";
  const name = wanted === "auto" ? base : `${base}-${wanted}`;
  const { exitCode, stdout, stderr } = await run([name, "--version"], { timeoutMs });
  const match = /v(\d+)\.(\d+)\.(\d+)(?: \((nf_tables|legacy)\))?/.exec(stdout);
  if (exitCode !== 0 || match === null) {
    throw new BackendIptablesError(
      "IPTABLES_MISSING",
      `${name} --version (exit ${exitCode}): ${stdout}${stderr}`.trim(),
    );
  }
  const version = [Number(match[1]), Number(match[2]), Number(match[3])] as const;
  if (isOlder(version, minVersion)) {
    const text = `${name} is ${version.join(".")}, at least ${minVersion.join(".")} is needed`;
    throw new BackendIptablesError("IPTABLES_TOO_OLD", text);
  }
  return {
    family,
    save: `${name}-save`,
    restore: `${name}-restore`,
    version: version.join("."),
    variant: match[4] === "nf_tables" ? "nft" : "legacy",
  };
}

function isOlder(version: readonly number[], than: readonly number[]): boolean {
  const at = version.findIndex((number, index) => number !== than[index]);
  return at >= 0 && (version[at] ?? 0) < (than[at] ?? 0);
}

/** How many chains a transaction should make at most; measured with 10 000 chains of 10 rules, 1.8.9. */
export function maxChainsOf({ variant }: Tools): number {
  return variant === "nft" ? 1_000 : Number.POSITIVE_INFINITY;
}
