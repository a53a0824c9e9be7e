import { existsSync } from "node:fs";
import type { ProgramEnd } from "@kpng/backend-kit/exec/run-program.ts";
import type { Family } from "@kpng/model/address.ts";
import type { ProxyMode } from "@kpng/service-plan/outcomes.ts";
import { hasKubeProxyRules, type KubeProxyRules, kubeProxyRules } from "./kube-proxy-rules.ts";
import { readNftables } from "./read-nftables.ts";
import { describeFailure, type RunCommand, runCommand } from "./run-command.ts";
import { ShadowError } from "./shadow-error.ts";

/** The kernel mechanism that a program of the iptables family uses. The rules of one are invisible to the other. */
export type IptablesVariant = "nft" | "legacy";

/** Reads kube-proxy's rules of one family; undefined if it has none here. Errors: SAVE_FAILED. */
export type ReadKubeProxy = () => Promise<KubeProxyRules | undefined>;

const versionMs = 10_000;

interface KubeProxyPlace {
  /** The mode to look for first. Rules of the other mode remain if kube-proxy's mode was changed without cleanup. */
  readonly mode: ProxyMode;
  /** The kernel mechanism of its iptables mode. */
  readonly variant: IptablesVariant | "auto";
  /** Longest run of a program, in milliseconds. */
  readonly timeoutMs: number;
}

/**
 * Returns a function that reads kube-proxy's rules in either mode; undefined for a family in which this machine cannot
 * have rules. `shadowTask` calls it once for each family.
 *
 * Separate from `kube-proxy-rules.ts`, which is pure, and from `readNftables`, which reads the rules of nftables mode:
 * this file chooses the mode and runs iptables.
 *
 * Errors: IPTABLES_MISSING for IPv4 if `mode` is iptables.
 */
export async function openKubeProxy(
  family: Family,
  { mode, variant, timeoutMs }: KubeProxyPlace,
  run: RunCommand = runCommand,
): Promise<ReadKubeProxy | undefined> {
  if (family === "v6" && !existsSync("/proc/net/if_inet6")) return undefined;
  const nftables: ReadKubeProxy = () => readNftables(family, timeoutMs, run);
  const iptables = await openIptables(family, variant, timeoutMs, run).catch((error: unknown) => {
    if (mode === "iptables") throw error;
    return undefined;
  });
  if (iptables === undefined) return mode === "iptables" ? undefined : nftables;
  const [first, second] = mode === "iptables" ? [iptables, nftables] : [nftables, iptables];
  return async () => (await first()) ?? (await second());
}

/**
 * Returns a function that reads the rules of iptables mode; undefined if the family has no iptables.
 *
 * kube-proxy's image chooses between iptables-nft and iptables-legacy by itself, and its choice may differ from the
 * node's own `iptables`. With "auto" the other variant is therefore read too if the first has no rules of kube-proxy.
 * Runs only `--version` and `iptables-save`, which take no lock and write nothing.
 *
 * Errors: IPTABLES_MISSING for IPv4.
 */
async function openIptables(
  family: Family,
  variant: IptablesVariant | "auto",
  timeoutMs: number,
  run: RunCommand,
): Promise<ReadKubeProxy | undefined> {
  const base = family === "v4" ? "iptables" : "ip6tables";
  const names = variant === "auto" ? [base, `${base}-nft`, `${base}-legacy`] : [`${base}-${variant}`];
  const nameByVariant = new Map<string, string>();
  for (const name of names) {
    const end = await run([name, "--version"], versionMs);
    const found = variantOf(end);
    if (found !== undefined) nameByVariant.set(found, nameByVariant.get(found) ?? name);
    else if (name === names[0]) {
      if (family === "v4")
        throw new ShadowError("IPTABLES_MISSING", `${name} --version: ${describeFailure(end, versionMs)}`);
    }
  }
  if (nameByVariant.size === 0) return undefined;
  return async () => {
    for (const name of nameByVariant.values()) {
      const saved = await save(`${name}-save`, timeoutMs, run);
      if (hasKubeProxyRules(saved)) return { mode: "iptables", text: kubeProxyRules(saved) };
    }
    return undefined;
  };
}

/** *Shape of what it reads:* `iptables v1.8.9 (nf_tables)`; versions before 1.8 print no variant and are legacy. */
function variantOf(end: ProgramEnd): IptablesVariant | undefined {
  if (end.kind !== "exited" || end.exitCode !== 0) return undefined;
  if (!/v\d+\.\d+/.test(end.stdout)) return undefined;
  return end.stdout.includes("(nf_tables)") ? "nft" : "legacy";
}

/**
 * Runs iptables-save without `-t`: with it, iptables-legacy would load the module of the table, which then costs time
 * for each packet.
 */
async function save(program: string, timeoutMs: number, run: RunCommand): Promise<string> {
  const end = await run([program], timeoutMs);
  if (end.kind === "exited" && end.exitCode === 0) return end.stdout;
  throw new ShadowError("SAVE_FAILED", `${program} failed (${describeFailure(end, timeoutMs)})`);
}
