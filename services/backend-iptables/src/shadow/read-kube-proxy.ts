import type { Family } from "@kpng/model/address.ts";
import { findTools, type Tools, type Variant } from "../read/find-tools.ts";
import { BackendIptablesError } from "../read/iptables-error.ts";
import { readRules } from "../read/read-rules.ts";
import { type RunTool, runTool } from "../read/run-tool.ts";
import { hasKubeProxyRules, kubeProxyRules } from "./kube-proxy-rules.ts";

/** Reads kube-proxy's rules of one family; undefined if it has none here. Errors: SAVE_FAILED, TOOL_TIMEOUT. */
export type ReadKubeProxy = () => Promise<string | undefined>;

/**
 * Returns how to read kube-proxy's rules; undefined for a family that this machine cannot have rules in.
 *
 * kube-proxy's image chooses between iptables-nft and -legacy by itself, and not always as the node's own `iptables` does:
 * with "auto" the other kind is asked too if the first shows none. Runs `--version` and `iptables-save` alone, which take
 * no lock and write nothing.
 *
 * Errors: IPTABLES_MISSING, IPTABLES_TOO_OLD for IPv4.
 */
export async function openKubeProxy(
  family: Family,
  variant: Variant | "auto",
  timeoutMs: number,
  run: RunTool = runTool,
): Promise<ReadKubeProxy | undefined> {
  const tools: Tools[] = [];
  for (const each of variant === "auto" ? (["auto", "nft", "legacy"] as const) : [variant]) {
    const isFirst = each === variant;
    const found = await findTools(family, each, run).catch((error: unknown) => {
      if (isFirst && family === "v4") throw error;
      if (error instanceof BackendIptablesError) return undefined;
      throw error;
    });
    if (found === undefined || "missing" in found) continue;
    if (tools.every((known) => known.variant !== found.variant)) tools.push(found);
  }
  if (tools.length === 0) return undefined;
  return async () => {
    for (const each of tools) {
      const saved = await readRules(each, run, timeoutMs);
      if (hasKubeProxyRules(saved)) return kubeProxyRules(saved);
    }
    return undefined;
  };
}
