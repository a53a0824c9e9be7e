import { accessSync, constants } from "node:fs";
import { Laboratory, LaboratoryUnavailable } from "./laboratory.ts";
import { runCommand, toolEnvironment } from "./run-command.ts";

/**
 * An open laboratory (network namespaces that exchange real packets), or the reason why this machine has none. Many
 * containers permit no namespaces, so the demo and the tests must do without one there.
 */
type OpenResult =
  | { readonly kind: "open"; readonly laboratory: Laboratory }
  | { readonly kind: "unavailable"; readonly reason: string };

/**
 * Opens a laboratory if this machine has the tools, permits namespaces and can load NAT rules of both families.
 *
 * As root on Debian it first installs missing tools, and reports that through `say`.
 *
 * The demo and `describePackets` of the kernel tests call it. Separate from `Laboratory`, which assumes that the tools
 * are installed.
 */
export async function openLaboratory(say: (text: string) => void): Promise<OpenResult> {
  if (process.platform !== "linux") return unavailable("network namespaces need Linux");
  if (missingTools().length > 0) await install(missingTools(), say);
  const tools = missingTools();
  if (tools.length > 0) {
    return unavailable(`not installed: ${tools.join(", ")} (Debian packages: ${packagesOf(tools).join(" ")})`);
  }
  try {
    const laboratory = await Laboratory.open();
    const reason = await tryRules(laboratory);
    if (reason === undefined) return { kind: "open", laboratory };
    await laboratory.close();
    return unavailable(reason);
  } catch (error) {
    if (!(error instanceof LaboratoryUnavailable)) throw error;
    return unavailable(`this user cannot create namespaces on this machine: ${error.message}`);
  }
}

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

function unavailable(reason: string): OpenResult {
  return { kind: "unavailable", reason };
}

/**
 * NAT rules with every match and target that the demo and the tests need, for iptables-restore and ip6tables-restore.
 */
const sampleRules = `*nat
-A PREROUTING -m comment --comment sample -m statistic --mode random --probability 0.5 -j DNAT --to-destination ADDRESS
-A POSTROUTING -j MASQUERADE
COMMIT
`;

/** Returns why the kernel rejects NAT rules, or undefined if it accepts them. Only loading some of them shows that. */
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
    const { exitCode, stderr } = await laboratory.tryRun("probe", [tool], sampleRules.replace("ADDRESS", address));
    if (exitCode !== 0) return `the kernel rejects NAT rules: ${tool}: ${stderr.trim()}`;
  }
  return undefined;
}

function missingTools(): readonly string[] {
  const folders = (toolEnvironment().PATH ?? "").split(":");
  const isIn = (folder: string, tool: string) => {
    try {
      accessSync(`${folder}/${tool}`, constants.X_OK);
      return true;
    } catch {
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
  const packages = packagesOf(tools).join(" ");
  const command = `DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends ${packages}`;
  const { exitCode: hasApt } = await runCommand(["sh", "-c", "command -v apt-get"]);
  if (hasApt !== 0) return;
  say(`installing ${packages} with apt-get (not found: ${tools.join(", ")})`);
  // The package lists of a fresh image are empty or outdated.
  const script = `${command} || { apt-get update && ${command}; }`;
  const { exitCode, stderr } = await runCommand(["sh", "-c", script], "", 300_000);
  if (exitCode !== 0) say(`apt-get failed: ${stderr.trim().split("\n").at(-1) ?? ""}`);
}
