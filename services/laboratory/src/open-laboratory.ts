import { accessSync, constants } from "node:fs";
import { join } from "node:path";
import { Laboratory, NoLaboratory } from "./laboratory.ts";
import { collect, toolEnvironment } from "./run-command.ts";

/** The tools that the demo calls, and the Debian package that each is in. */
const packageByTool: Readonly<Record<string, string>> = {
  unshare: "util-linux",
  nsenter: "util-linux",
  setpriv: "util-linux",
  ip: "iproute2",
  "iptables-save": "iptables",
  "iptables-restore": "iptables",
  "ip6tables-save": "iptables",
  "ip6tables-restore": "iptables",
};

/** What the machine gives: a place for real packets, or the reason why there is none. */
export type Requirements =
  | { readonly kind: "ready"; readonly laboratory: Laboratory }
  | { readonly kind: "missing"; readonly reason: string };

/**
 * Makes a laboratory and sees that the example's rules can be set in it, both families.
 *
 * As root on Debian, missing tools are installed first, and `say` tells so.
 */
export async function meetRequirements(say: (text: string) => void): Promise<Requirements> {
  if (process.platform !== "linux") return { kind: "missing", reason: "network namespaces need Linux" };
  if (missingTools().length > 0) await install(missingTools(), say);
  const tools = missingTools();
  if (tools.length > 0) {
    const packages = packagesOf(tools).join(" ");
    return { kind: "missing", reason: `not installed: ${tools.join(", ")} (Debian packages: ${packages})` };
  }
  try {
    const laboratory = await Laboratory.open();
    const reason = await tryRules(laboratory);
    if (reason === undefined) return { kind: "ready", laboratory };
    await laboratory.close();
    return { kind: "missing", reason };
  } catch (error) {
    if (!(error instanceof NoLaboratory)) throw error;
    return { kind: "missing", reason: `no namespaces for this user on this machine: ${error.message}` };
  }
}

/** NAT rules with every match and target that the demo and the tests need, for iptables-restore and ip6tables-restore. */
const sampleRules = `*nat
-A PREROUTING -m comment --comment sample -m statistic --mode random --probability 0.5 -j DNAT --to-destination ADDRESS
-A POSTROUTING -j MASQUERADE
COMMIT
`;

/** Returns why the kernel rejects our rules, or undefined if it accepts them; only loading some tells. */
async function tryRules(laboratory: Laboratory): Promise<string | undefined> {
  try {
    await laboratory.add("probe");
  } catch (error) {
    return `cannot create a network namespace: ${error instanceof Error ? error.message : String(error)}`;
  }
  for (const [tool, address] of [
    ["iptables-restore", "192.0.2.1"],
    ["ip6tables-restore", "2001:db8::1"],
  ] as const) {
    const { exitCode, stderr } = await laboratory.finish("probe", [tool], sampleRules.replace("ADDRESS", address));
    if (exitCode !== 0) return `the kernel rejects NAT rules: ${tool}: ${stderr.trim()}`;
  }
  return undefined;
}

function missingTools(): readonly string[] {
  const folders = (toolEnvironment().PATH ?? "").split(":");
  const isIn = (folder: string, tool: string) => {
    try {
      accessSync(join(folder, tool), constants.X_OK);
      return true;
    } catch {
      // Absent or not executable is the answer that was asked for.
      return false;
    }
  };
  return Object.keys(packageByTool).filter((tool) => !folders.some((folder) => isIn(folder, tool)));
}

function packagesOf(tools: readonly string[]): readonly string[] {
  return [...new Set(tools.flatMap((tool) => packageByTool[tool] ?? []))];
}

async function install(tools: readonly string[], say: (text: string) => void): Promise<void> {
  if (process.getuid?.() !== 0) return;
  const packages = packagesOf(tools);
  const command = `DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends ${packages.join(" ")}`;
  const { exitCode: hasApt } = await collect(["sh", "-c", "command -v apt-get"]);
  if (hasApt !== 0) return;
  say(`installing ${packages.join(" ")} (apt-get), because ${tools.join(", ")} are missing`);
  // The lists of a fresh image are empty or old.
  const { exitCode, stderr } = await collect(
    ["sh", "-c", `${command} || { apt-get update && ${command}; }`],
    "",
    300_000,
  );
  if (exitCode !== 0) say(`apt-get failed: ${stderr.trim().split("\n").at(-1) ?? ""}`);
}
