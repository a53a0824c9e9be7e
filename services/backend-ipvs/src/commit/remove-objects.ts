import { CleanupFailures } from "@kpng/backend-kit/proxy/cleanup-failures.ts";
import { type Family, families } from "@kpng/model/address.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { readVariants } from "../read/installed-frame.ts";
import { type ReadObjects, readObjects, readServers } from "../read/read-objects.ts";
import type { RunTool } from "../read/run-tool.ts";
import { BackendIpvsError } from "../render/ipvs-error.ts";
import { parseServer } from "../render/kernel-objects.ts";
import { type ObjectNames, type SetRole, setName, sharedInterface } from "../render/object-names.ts";
import { handedOver, recordIn } from "../render/record-element.ts";
import { destroySets } from "./destroy-sets.ts";
import { deleteInterface } from "./node-interface.ts";
import { removeChains } from "./remove-chains.ts";

/** RECORD says whether virtual servers at addresses belong to kube-proxy. */
const serverRecords: ReadonlySet<SetRole> = new Set(["SERVERS", "MARKS", "RECORD"]);

interface RemoveOptions {
  readonly names: ObjectNames;
  readonly runTool: RunTool;
  readonly log: Log;
}

/**
 * Removes everything that one instance has in the kernel: the interface with its addresses, virtual servers, rules,
 * ipsets. Sysctls and virtual servers of other programs stay, and after `handOver` the interface and the virtual
 * servers at addresses, which kube-proxy owns then. It uses no firewall marks, so virtual servers of marks go. An
 * interface with the shared name is ours only if ipsets of ours record its addresses.
 *
 * `proxyBackend` of backend-kit calls it for `--cleanup`, through `cleanUp` of `ipvsBackend`. Separate from
 * `IpvsRuleSet`, which needs the Services of a view; a cleanup has none.
 *
 * Errors: MOVE_TOO_EARLY after `handOver`, while kube-proxy has no rules; then nothing has changed. Otherwise it goes
 * on after a failure, logs each and throws the first: READ_FAILED, COMMIT_REJECTED, TOOL_MISSING. Another cleanup
 * removes the rest: the ipsets that record virtual servers stay with them. A kernel without IPVS is no failure.
 */
export async function removeObjects({ names, runTool, log }: RemoveOptions): Promise<void> {
  const failures = new CleanupFailures(log);
  const reads = new Map<Family, ReadObjects>();
  const installed = await failures.attempt(() => readServersOrNone(runTool));
  for (const family of families) {
    const read = await failures.attempt(() => readObjects(runTool, names, family, { servers: installed ?? "" }));
    if (read !== undefined) reads.set(family, read);
  }
  const isHandedOver = [...reads.values()].some(({ objects }) => recordIn(objects) === handedOver);
  if (isHandedOver) await checkKubeProxyServes(runTool, reads);
  const isOwnInterface =
    names.interfaceName !== sharedInterface || [...reads.values()].some(({ sets }) => sets.has("ADDRESSES"));
  // First the addresses: afterwards no packet reaches the node's own ports through them.
  const hasNoInterface = await failures.attempt(async () => {
    if (isOwnInterface && !isHandedOver) await deleteInterface(runTool, names.interfaceName);
    return true;
  });
  for (const family of families) {
    const read = reads.get(family);
    const own = [...(read?.objects.get("server")?.keys() ?? [])];
    const servers = isHandedOver ? own.filter((server) => parseServer(server)?.kind === "mark") : own;
    const hasNoServers = await failures.attempt(async () => {
      const lines = servers.map((server) => `-D ${server}`);
      if (lines.length > 0) await runTool.write(["ipvsadm", "-R"], lines);
      return installed !== undefined;
    });
    const isOwn = (chain: string): boolean => chain.startsWith(`${names.prefix}-`);
    const rules = await failures.attempt(() => removeChains(runTool, family, isOwn));
    // Another cleanup needs these records to know what is ours.
    const isKept = (role: SetRole): boolean =>
      (hasNoServers !== true && serverRecords.has(role)) || (hasNoInterface !== true && role === "ADDRESSES");
    const sets = [...(read?.sets ?? [])].filter((role) => !isKept(role));
    await destroySets(
      runTool,
      failures,
      sets.map((role) => setName(names, family, role)),
    );
    if (read === undefined) continue;
    if (hasNoServers !== true)
      log.error("virtual servers and the ipsets that record them stay: clean up again", { family });
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
    // The words of ipvsadm for ENOPROTOOPT. Where it only lacks rights, it says so instead.
    if (/Can't initialize ipvs: Protocol not available/.test(reasonOf(error))) return "";
    throw error;
  }
}

/**
 * Checks that kube-proxy has written its rules, which it does last in a sync, where it has been given virtual servers.
 */
async function checkKubeProxyServes(runTool: RunTool, reads: ReadonlyMap<Family, ReadObjects>): Promise<void> {
  for (const [family, { objects }] of reads) {
    if ((objects.get("SERVERS")?.size ?? 0) === 0) continue;
    if (await hasKubeProxyRules(runTool, family)) continue;
    const reason = `virtual servers were handed over to kube-proxy, which has no rules for ${family} yet`;
    throw new BackendIpvsError("MOVE_TOO_EARLY", `nothing removed: ${reason}`);
  }
}

async function hasKubeProxyRules(runTool: RunTool, family: Family): Promise<boolean> {
  for await (const { saved } of readVariants(runTool, family)) {
    if (/^-A KUBE-SERVICES /m.test(saved)) return true;
  }
  return false;
}
