import { existsSync } from "node:fs";
import type { Family } from "@kpng/model/address.ts";
import { BackendIptablesError } from "./iptables-error.ts";
import type { RunTool } from "./run-tool.ts";

/** The kernel mechanism that the tools write to. The tools of one variant do not show the rules of the other. */
export type Variant = "nft" | "legacy";

/** The programs of iptables for one family. */
export interface Tools {
  readonly family: Family;
  /** Name of the program that prints the installed rules, e.g. `iptables-nft-save`. */
  readonly save: string;
  /** Name of the program that commits a transaction, e.g. `iptables-nft-restore`. */
  readonly restore: string;
  /** *Shape:* `1.8.9`. */
  readonly version: string;
  readonly variant: Variant;
}

/** The oldest version with `--random-fully`, and whose iptables-restore waits for the lock. */
const minVersion = [1, 6, 2] as const;

const timeoutMs = 10_000;

/**
 * Looks for the tools of one family and checks their version. `openTools` calls it at the start, `removeRules` for
 * `--cleanup`. Separate from both: they differ in which families and variants they require.
 *
 * The result `missing` is the reason why this machine cannot have rules of the family (IPv6 is disabled).
 *
 * Errors: IPTABLES_MISSING, IPTABLES_TOO_OLD.
 */
export async function findTools(
  family: Family,
  wanted: Variant | "auto",
  run: RunTool,
): Promise<Tools | { readonly missing: string }> {
  if (family === "v6" && !existsSync("/proc/net/if_inet6")) return { missing: "IPv6 is disabled in the kernel" };
  const base = family === "v4" ? "iptables" : "ip6tables";
  const name = wanted === "auto" ? base : `${base}-${wanted}`;
  const { exitCode, stdout, stderr } = await run([name, "--version"], { timeoutMs });
  const match = /v(\d+)\.(\d+)\.(\d+)(?: \((nf_tables|legacy)\))?/.exec(stdout);
  if (exitCode !== 0 || match === null) {
    throw new BackendIptablesError(
      "IPTABLES_MISSING",
      `${name} --version failed (exit status ${exitCode}): ${stdout}${stderr}`.trim(),
    );
  }
  const version = [Number(match[1]), Number(match[2]), Number(match[3])] as const;
  if (isOlder(version, minVersion)) {
    const text = `${name} has version ${version.join(".")}; at least ${minVersion.join(".")} is required`;
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

/**
 * Returns the maximum number of chains that one transaction should create. `openRuleSets` passes it to the rule set,
 * whose `splitChange` splits larger transactions, because the time of iptables-nft is quadratic. Measured with
 * iptables-nft 1.8.9 and 10 000 chains of 10 rules.
 */
export function maxChainsOf({ variant }: Tools): number {
  return variant === "nft" ? 1_000 : Number.POSITIVE_INFINITY;
}
