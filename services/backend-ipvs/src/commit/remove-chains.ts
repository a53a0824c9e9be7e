import type { Family } from "@kpng/model/address.ts";
import { readVariants } from "../read/installed-frame.ts";
import type { RunTool } from "../read/run-tool.ts";

/**
 * Deletes the chains of one family that `isOwn` accepts, and the rules of other chains that jump to them, from all
 * variants of iptables. All other rules stay, also those that another program adds meanwhile. Returns the number of
 * deleted rules.
 *
 * `removeObjects` removes our own chains with it, and `removeKubeProxy` those of kube-proxy. Errors: READ_FAILED,
 * COMMIT_REJECTED, TOOL_MISSING.
 */
export async function removeChains(
  runTool: RunTool,
  family: Family,
  isOwn: (chain: string) => boolean,
): Promise<number> {
  let total = 0;
  for await (const { saved, restore } of readVariants(runTool, family)) {
    const { count, lines } = chainRemoval(saved, isOwn);
    if (lines.length > 0) await runTool.write([restore, "--noflush", "--wait", "5"], lines);
    total += count;
  }
  return total;
}

/** Returns the number of rules that go, and the input of iptables-restore. `saved` is the output of iptables-save. */
function chainRemoval(saved: string, isOwn: (chain: string) => boolean): { count: number; lines: readonly string[] } {
  let [table, count] = ["", 0];
  const chains: string[] = [];
  const jumps: string[] = [];
  const lines: string[] = [];
  for (const line of saved.split("\n")) {
    const [, chain] = /^:(\S+) /.exec(line) ?? [];
    const [, from = "", target = ""] = /^-A (\S+)(?:.* -[jg] (\S+))?/.exec(line) ?? [];
    if (line.startsWith("*")) table = line;
    else if (chain !== undefined && isOwn(chain)) chains.push(chain);
    else if (isOwn(from)) count += 1;
    else if (isOwn(target)) jumps.push(line.replace("-A ", "-D "));
    else if (line === "COMMIT") {
      const removal = [...chains.map((each) => `:${each} - [0:0]`), ...jumps, ...chains.map((each) => `-X ${each}`)];
      if (removal.length > 0) lines.push(table, ...removal, line);
      count += jumps.length;
      chains.length = 0;
      jumps.length = 0;
    }
  }
  return { count, lines };
}
