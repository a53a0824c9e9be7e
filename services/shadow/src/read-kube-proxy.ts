import { existsSync } from "node:fs";
import { describeEnd, type ProgramEnd, runProgram } from "@kpng/backend-kit/exec/run-program.ts";
import { toolEnvironment } from "@kpng/backend-kit/exec/tool-environment.ts";
import type { Family } from "@kpng/model/address.ts";
import { hasKubeProxyRules, kubeProxyRules } from "./kube-proxy-rules.ts";
import { ShadowError } from "./shadow-error.ts";

/** The kernel mechanism that a program of the iptables family uses. The rules of one are invisible to the other. */
export type IptablesVariant = "nft" | "legacy";

/** Reads kube-proxy's rules of one family; undefined if it has none here. Errors: SAVE_FAILED. */
export type ReadKubeProxy = () => Promise<string | undefined>;

/** Runs a program to its end, at most for so many milliseconds. */
export type RunCommand = (command: readonly string[], timeoutMs: number) => Promise<ProgramEnd>;

/** iptables-save prints about 200 MB for 100 000 Services. */
const maxOutputBytes = 1024 * 1024 * 1024;

const runCommand: RunCommand = (command, timeoutMs) =>
  runProgram(command, { timeoutMs, env: toolEnvironment(), maxOutputBytes });

/** Time for a program that only prints its version, in milliseconds. */
const versionMs = 10_000;

/**
 * Returns a function that reads kube-proxy's rules; undefined for a family that this machine cannot have rules in.
 *
 * kube-proxy's image chooses between iptables-nft and iptables-legacy by itself, and its choice may differ from the
 * node's own `iptables`. With "auto" the other variant is therefore read too if the first has no rules of kube-proxy.
 * Runs only `--version` and `iptables-save`, which take no lock and write nothing.
 *
 * Errors: IPTABLES_MISSING for IPv4.
 */
export async function openKubeProxy(
  family: Family,
  variant: IptablesVariant | "auto",
  timeoutMs: number,
  run: RunCommand = runCommand,
): Promise<ReadKubeProxy | undefined> {
  if (family === "v6" && !existsSync("/proc/net/if_inet6")) return undefined;
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
      if (hasKubeProxyRules(saved)) return kubeProxyRules(saved);
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

/** Without `-t`: asking iptables-legacy for a table loads the table's module, which then costs each packet. */
async function save(program: string, timeoutMs: number, run: RunCommand): Promise<string> {
  const end = await run([program], timeoutMs);
  if (end.kind === "exited" && end.exitCode === 0) return end.stdout;
  throw new ShadowError("SAVE_FAILED", `${program} failed (${describeFailure(end, timeoutMs)})`);
}

function describeFailure(end: ProgramEnd, timeoutMs: number): string {
  const words = "stderr" in end ? end.stderr.trim() : "";
  return [describeEnd(end, timeoutMs), ...(words === "" ? [] : [words])].join(": ");
}
