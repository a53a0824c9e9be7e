import { existsSync, realpathSync } from "node:fs";
import { join } from "node:path";
import { buildTwoNodes, type TwoNodes } from "@kpng/laboratory/check/two-nodes.ts";
import type { Laboratory } from "@kpng/laboratory/laboratory.ts";

/** Kernel mechanism that `iptables` uses in a laboratory. */
export type IptablesVariant = "nft" | "legacy";

const folders = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/** Returns the reason why iptables-legacy cannot be used here; undefined if it can. */
export function whyNoLegacy(): string | undefined {
  return programOf("iptables-legacy") === undefined ? "iptables-legacy not found" : undefined;
}

/**
 * Replaces `iptables` and its companions by iptables-legacy for all programs in the laboratory, including kube-proxy.
 * All commands of a variant are links to one program; the legacy program is mounted over the other one, only in the
 * laboratory's mount namespace.
 *
 * The lock file is separate, too, because other programs may hold that of the machine.
 */
export async function useLegacyTools(laboratory: Laboratory, name: string): Promise<void> {
  const [legacy, present] = [programOf("iptables-legacy"), programOf("iptables")];
  if (legacy === undefined || present === undefined) throw new Error("iptables-legacy not found");
  const lock = join(laboratory.folder, "xtables.lock");
  const script = `: >"$0" && : >>/run/xtables.lock && mount --bind "$0" /run/xtables.lock
    [ "$1" = "$2" ] || mount --bind "$1" "$2"`;
  await laboratory.run(name, ["sh", "-c", script, lock, legacy, present]);
  const said = await laboratory.run(name, ["iptables", "--version"]);
  if (!said.includes("legacy")) throw new Error(`iptables is not iptables-legacy: ${said.trim()}`);
}

function programOf(tool: string): string | undefined {
  const folder = folders.find((each) => existsSync(join(each, tool)));
  return folder === undefined ? undefined : realpathSync(join(folder, tool));
}

/** Builds the network of the scenarios, with one kind of iptables on n1. Errors: as {@link buildTwoNodes}. */
export function buildVariant(variant: IptablesVariant = "nft"): Promise<TwoNodes> {
  const prepare = (laboratory: Laboratory) => useLegacyTools(laboratory, "n1");
  return buildTwoNodes(variant === "legacy" ? { prepare } : {});
}
