import { CleanupFailures } from "@kpng/backend-kit/proxy/cleanup-failures.ts";
import { type Family, families } from "@kpng/model/address.ts";
import type { Log } from "@kpng/process/log.ts";
import { iptablesTool, parseFrame } from "../read/installed-frame.ts";
import { parseLink, readObjects } from "../read/read-objects.ts";
import type { RunTool } from "../read/run-tool.ts";
import { type ObjectNames, setName } from "../render/object-names.ts";

interface RemoveOptions {
  readonly names: ObjectNames;
  readonly runTool: RunTool;
  readonly log: Log;
}

/**
 * Removes everything that one instance has in the kernel: the interface with its addresses, virtual servers, rules,
 * ipsets. Sysctls and virtual servers of other programs stay.
 *
 * `proxyBackend` of backend-kit calls it for `--cleanup`, through `cleanUp` of `ipvsBackend`. Separate from
 * `IpvsRuleSet`, which needs the Services of a view; a cleanup has none.
 *
 * Errors: it goes on after a failure, logs each and throws the first: READ_FAILED, COMMIT_REJECTED, TOOL_MISSING.
 * Another cleanup removes the rest.
 */
export async function removeObjects({ names, runTool, log }: RemoveOptions): Promise<void> {
  const failures = new CleanupFailures(log);
  // First the addresses: afterwards no packet reaches the node's own ports through them.
  await failures.attempt(() => removeInterface(runTool, names));
  for (const family of families) {
    const read = await failures.attempt(() => readObjects(runTool, names, family));
    const servers = [...(read?.objects.get("server")?.keys() ?? [])];
    const hasNoServers = await failures.attempt(async () => {
      const lines = servers.map((server) => `-D ${server}`);
      if (lines.length > 0) await runTool.write(["ipvsadm", "-R"], lines);
      return true;
    });
    const rules = await failures.attempt(() => removeFrame(runTool, names, family));
    for (const role of read?.sets ?? []) {
      // Another cleanup needs these records to know which virtual servers are ours.
      if (hasNoServers !== true && (role === "SERVERS" || role === "MARKS")) continue;
      await failures.attempt(() => runTool.write(["ipset", "restore"], [`destroy ${setName(names, family, role)}`]));
    }
    log.info("family removed", { family, virtualServers: servers.length, rules, sets: read?.sets.size });
  }
  failures.end();
}

async function removeInterface(runTool: RunTool, { interfaceName }: ObjectNames): Promise<void> {
  const links = await runTool.read(["ip", "-o", "link", "show"]);
  if (parseLink(links, interfaceName) === "missing") return;
  await runTool.write(["ip", "-batch", "-"], [`link delete ${interfaceName}`]);
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
