import { type Family, families } from "@kpng/model/address.ts";
import type { Log } from "@kpng/process/log.ts";
import { iptablesTool, parseFrame } from "../read/installed-frame.ts";
import { readObjects } from "../read/read-objects.ts";
import type { RunTool } from "../read/run-tool.ts";
import { type ObjectNames, setName } from "../render/object-names.ts";

/** Options of {@link removeObjects}. */
export interface RemoveOptions {
  readonly names: ObjectNames;
  readonly runTool: RunTool;
  readonly log: Log;
}

/**
 * Removes everything that one instance has in the kernel: virtual servers, rules, ipsets, the interface. Sysctls and
 * foreign virtual servers stay. `--cleanup` calls it. Errors: READ_FAILED, COMMIT_REJECTED, TOOL_MISSING; a repetition
 * continues.
 */
export async function removeObjects({ names, runTool, log }: RemoveOptions): Promise<void> {
  for (const family of families) {
    const { objects, sets } = await readObjects(runTool, names, family);
    const servers = [...(objects.get("server")?.keys() ?? [])];
    // First the address: afterwards no packet reaches the node's own ports through it.
    const addresses = [...(objects.get("address")?.keys() ?? [])];
    const length = family === "v4" ? 32 : 128;
    if (addresses.length > 0) {
      const lines = addresses.map((address) => `address delete ${address}/${length} dev ${names.interfaceName}`);
      await runTool.write(["ip", "-batch", "-"], lines);
    }
    if (servers.length > 0) {
      await runTool.write(
        ["ipvsadm", "-R"],
        servers.map((server) => `-D ${server}`),
      );
    }
    const rules = await removeFrame(runTool, names, family);
    if (sets.size > 0) {
      const lines = [...sets].map((role) => `destroy ${setName(names, family, role)}`);
      await runTool.write(["ipset", "restore"], lines);
    }
    log.info("removed", {
      family,
      virtualServers: servers.length,
      addresses: addresses.length,
      rules,
      sets: sets.size,
    });
  }
  const links = await runTool.read(["ip", "-o", "link", "show"]);
  if (new RegExp(`^\\d+: ${names.interfaceName}[@:]`, "m").test(links)) {
    await runTool.write(["ip", "-batch", "-"], [`link delete ${names.interfaceName}`]);
  }
}

/** Deletes our jumps and chains; returns the number of rules. */
async function removeFrame(runTool: RunTool, names: ObjectNames, family: Family): Promise<number> {
  const saved = await runTool.read([iptablesTool(family, "save")]);
  const { rules } = parseFrame(saved, names);
  const chains = parseChains(saved, names);
  if (rules.length + chains.length === 0) return 0;
  const tables = new Set([...rules, ...chains].map((line) => line.split(" ")[0] ?? ""));
  const lines = [...tables].flatMap((table) => {
    const ofTable = (all: readonly string[]) =>
      all.flatMap((line) => (line.startsWith(`${table} `) ? [line.slice(table.length + 1)] : []));
    const own = ofTable(chains);
    const jumps = ofTable(rules).filter((rule) => !rule.startsWith(`-A ${names.prefix}-`));
    return [
      `*${table}`,
      ...own.map((chain) => `:${chain} - [0:0]`),
      ...jumps.map((rule) => rule.replace("-A ", "-D ")),
      ...own.map((chain) => `-X ${chain}`),
      "COMMIT",
    ];
  });
  await runTool.write([iptablesTool(family, "restore"), "--noflush", "--wait", "5"], lines);
  return rules.length;
}

/** Returns our chains in the output of iptables-save. *Shape:* `mangle KPNGIPVS-OUTPUT`. */
function parseChains(text: string, { prefix }: ObjectNames): readonly string[] {
  let table = "";
  return text.split("\n").flatMap((line) => {
    if (line.startsWith("*")) table = line.slice(1);
    const [, chain] = /^:(\S+) /.exec(line) ?? [];
    return chain?.startsWith(`${prefix}-`) === true ? [`${table} ${chain}`] : [];
  });
}
