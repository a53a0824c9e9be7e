import type { Family } from "@kpng/model/address.ts";
import type { KubeProxyRules } from "./kube-proxy-rules.ts";
import { describeFailure, type RunCommand } from "./run-command.ts";
import { ShadowError } from "./shadow-error.ts";

/**
 * Reads the table of kube-proxy's nftables mode for one family; undefined if there is none, or no program `nft`. The
 * function that `openKubeProxy` returns calls it. Separate from it, because nft prints JSON and iptables-save prints
 * text that must be reduced.
 *
 * Runs `nft -j list table`, which writes nothing. Its output is about 1 kB for each Service port. Errors: SAVE_FAILED.
 */
export async function readNftables(
  family: Family,
  timeoutMs: number,
  run: RunCommand,
): Promise<KubeProxyRules | undefined> {
  const command = ["nft", "-j", "list", "table", family === "v4" ? "ip" : "ip6", "kube-proxy"];
  const end = await run(command, timeoutMs);
  if (end.kind === "not-started") return undefined;
  if (end.kind === "exited" && end.exitCode === 0) return { mode: "nftables", text: withoutHandles(end.stdout) };
  if (end.kind === "exited" && end.stderr.includes("No such file or directory")) return undefined;
  throw new ShadowError("SAVE_FAILED", `${command.join(" ")} failed (${describeFailure(end, timeoutMs)})`);
}

/**
 * Removes the handles of rules: a rule that is replaced by an equal one gets another handle, and must be equal text.
 */
function withoutHandles(text: string): string {
  return text.replaceAll(/, "handle": \d+/g, "");
}
