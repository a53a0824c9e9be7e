import { CleanupFailures } from "@kpng/backend-kit/proxy/cleanup-failures.ts";
import { type Family, families } from "@kpng/model/address.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { type ReadObjects, readObjects, readServers } from "../read/read-objects.ts";
import type { RunTool } from "../read/run-tool.ts";
import { type ObjectNames, parseServer, type SetRole, setName, sharedInterface } from "../render/kernel-objects.ts";
import { deleteInterface, readVariants } from "./node-frame.ts";

/** Ipsets that record which virtual servers are ours. */
const serverRecords: ReadonlySet<SetRole> = new Set(["SERVERS", "MARKS"]);

interface RemoveOptions {
  readonly names: ObjectNames;
  readonly runTool: RunTool;
  readonly log: Log;
}

/**
 * Removes everything that one instance has in the kernel: the interface with its addresses, virtual servers, rules and
 * ipsets. Sysctls and virtual servers of other programs stay. If kube-proxy has ipsets of ipvs mode on the node, it has
 * taken over the shared interface and the virtual servers at addresses, so these stay, too. Because kube-proxy uses no
 * firewall marks, virtual servers of marks are always removed. An interface with the shared name is ours only if our
 * ipsets record its addresses.
 *
 * Errors: READ_FAILED, TOOL_MISSING, COMMIT_REJECTED. Everything is read first: if that fails, or if the interface cannot
 * be deleted, nothing has changed. It continues after other failures, logs each one, and throws the first. The next
 * cleanup can remove the remaining objects, because the ipsets that record virtual servers stay as long as the virtual
 * servers. A kernel without IPVS is not a failure.
 */
export async function removeObjects({ names, runTool, log }: RemoveOptions): Promise<void> {
  const installed = await readServersOrNone(runTool);
  const reads: (ReadObjects & { readonly family: Family })[] = [];
  for (const family of families) {
    reads.push({ family, ...(await readObjects(runTool, names, family, { servers: installed })) });
    // Only to see that the rules can be read: `removeChains` reads each variant when the one before it has been changed.
    await Array.fromAsync(readVariants(runTool, family));
  }
  const isShared = names.interfaceName === sharedInterface;
  const isKubeProxys = isShared && reads.some(({ hasKubeProxySets }) => hasKubeProxySets);
  if (isKubeProxys) log.info("the interface and virtual servers at addresses stay: kube-proxy in ipvs mode has them");
  const isOwnInterface = !isShared || reads.some(({ sets }) => sets.has("ADDRESSES"));
  // Addresses are deleted first, so that afterwards no packet can reach the node's own ports through them.
  if (isOwnInterface && !isKubeProxys) await deleteInterface(runTool, names.interfaceName);
  const failures = new CleanupFailures(log);
  for (const { family, ...read } of reads) {
    const ourServers = [...(read.objects.get("server")?.keys() ?? [])];
    const servers = isKubeProxys ? ourServers.filter((server) => parseServer(server)?.kind === "mark") : ourServers;
    const hasNoServers = await failures.attempt(async () => {
      const lines = servers.map((server) => `-D ${server}`);
      if (lines.length > 0) await runTool.write(["ipvsadm", "-R"], lines);
      return true;
    });
    const isOwn = (chain: string): boolean => chain.startsWith(`${names.prefix}-`);
    const rules = await failures.attempt(() => removeChains(runTool, family, isOwn));
    // The next cleanup needs these records to know which objects are ours.
    const sets = [...read.sets].filter((role) => hasNoServers === true || !serverRecords.has(role));
    await destroySets(
      runTool,
      failures,
      sets.map((role) => setName(names, family, role)),
    );
    if (hasNoServers !== true) log.error("some virtual servers could not be deleted: run --cleanup again", { family });
    else if (rules !== undefined)
      log.info("family removed", { family, virtualServers: servers.length, rules, sets: sets.length });
  }
  failures.end();
}

/** Returns the virtual servers as text; none if the kernel has no IPVS. Errors: READ_FAILED, TOOL_MISSING. */
async function readServersOrNone(runTool: RunTool): Promise<string> {
  try {
    return await readServers(runTool);
  } catch (error) {
    // The message of ipvsadm for ENOPROTOOPT. If only privileges are missing, its message is different.
    if (/Can't initialize ipvs: Protocol not available/.test(reasonOf(error))) return "";
    throw error;
  }
}

/**
 * Destroys ipsets in one run of ipset. The run ends at the first set that ipset refuses to destroy, e.g. because
 * another program's rule uses it. The remaining sets are then destroyed one by one, and each set that is refused again
 * is added to `failures`.
 */
export async function destroySets(runTool: RunTool, failures: CleanupFailures, sets: readonly string[]): Promise<void> {
  const destroy = (names: readonly string[]): Promise<void> =>
    runTool.write(
      ["ipset", "restore"],
      names.map((name) => `destroy ${name}`),
    );
  try {
    if (sets.length > 0) await destroy(sets);
  } catch {
    // The ipsets before the refused one have already been destroyed.
    const left = await failures.attempt(() => runTool.read(["ipset", "list", "-name"]));
    const isLeft = new Set(left?.split("\n") ?? sets);
    for (const set of sets) if (isLeft.has(set)) await failures.attempt(() => destroy([set]));
  }
}

/**
 * Deletes the chains of one family that `isOwn` accepts, and the rules in other chains that jump to them, from all
 * variants of iptables. All other rules stay, including rules that another program adds in the meantime. Returns the
 * number of deleted rules.
 *
 * Errors: READ_FAILED, COMMIT_REJECTED, TOOL_MISSING.
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

/**
 * Returns the number of rules to delete, and the input for iptables-restore. `saved` is the output of iptables-save.
 */
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
