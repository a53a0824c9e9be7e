import { parseLink } from "../read/read-objects.ts";
import type { RunTool } from "../read/run-tool.ts";

/**
 * Commands that create an interface for service addresses, for `ip -batch`. `IpvsRuleSet` prints them for `--dry-run`.
 */
export function interfaceLines(name: string): readonly string[] {
  return [`link add ${name} type dummy`, `link set ${name} up`];
}

/**
 * Creates the interface for service addresses, which both families share: each finds it missing, and one of them
 * creates it. `IpvsRuleSet` calls it before it adds addresses. Separate from it, because the interface belongs to the
 * node, not to a family.
 *
 * Errors: COMMIT_REJECTED, e.g. because the kernel has no dummy interfaces.
 */
export async function createInterface(runTool: RunTool, name: string): Promise<void> {
  const [add = "", up = ""] = interfaceLines(name);
  try {
    await runTool.write(["ip", "-batch", "-"], [add]);
  } catch (error) {
    if (!(error instanceof Error) || !error.message.includes("File exists")) throw error;
  }
  await runTool.write(["ip", "-batch", "-"], [up]);
}

/**
 * Deletes an interface with its addresses, if it exists. Errors: READ_FAILED, COMMIT_REJECTED, TOOL_MISSING.
 */
export async function deleteInterface(runTool: RunTool, name: string): Promise<void> {
  if (parseLink(await runTool.read(["ip", "-o", "link", "show"]), name) === "missing") return;
  await runTool.write(["ip", "-batch", "-"], [`link delete ${name}`]);
}
