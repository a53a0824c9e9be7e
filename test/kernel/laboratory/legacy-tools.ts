import { existsSync, realpathSync } from "node:fs";
import { join } from "node:path";
import type { Laboratory } from "@kpng/laboratory/laboratory.ts";

/** Which of the two kernel mechanisms `iptables` writes to in a laboratory. */
export type IptablesVariant = "nft" | "legacy";

const folders = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/** Why iptables-legacy cannot be used here; undefined if it can. */
export function whyNoLegacy(): string | undefined {
  return programOf("iptables-legacy") === undefined ? "no iptables-legacy on this machine" : undefined;
}

/**
 * Makes `iptables` and its companions mean iptables-legacy for all that runs in the laboratory, kube-proxy included: one
 * program is behind all names of a variant, and the other variant's is mounted over it, in the laboratory's own file tree.
 *
 * The lock is the laboratory's own too; the machine's is held by whoever else works on it.
 */
export async function useLegacyTools(laboratory: Laboratory, name: string): Promise<void> {
  const [legacy, present] = [programOf("iptables-legacy"), programOf("iptables")];
  if (legacy === undefined || present === undefined) throw new Error("no iptables-legacy on this machine");
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
