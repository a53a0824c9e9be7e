import { CleanupFailures } from "@kpng/backend-kit/proxy/cleanup-failures.ts";
import { type AddressSet, type Family, families } from "@kpng/model/address.ts";
import type { Log } from "@kpng/process/log.ts";
import { kubeProxyServers } from "../read/kube-proxy-servers.ts";
import { addressesOn, readServers } from "../read/read-objects.ts";
import type { RunTool } from "../read/run-tool.ts";
import { BackendIpvsError } from "../render/ipvs-error.ts";
import { isKubeProxyChain, kubeProxyInterface, kubeProxySetName, kubeProxySets } from "../render/kube-proxy-names.ts";
import type { ObjectNames } from "../render/object-names.ts";
import { destroySets } from "./destroy-sets.ts";
import { deleteInterface } from "./node-interface.ts";
import { removeChains } from "./remove-chains.ts";

interface RemoveKubeProxyOptions {
  readonly names: ObjectNames;
  readonly runTool: RunTool;
  readonly log: Log;
  /** The node's own addresses, without those of Services. */
  readonly localAddresses: AddressSet;
  readonly excludedCIDRs: readonly string[];
}

/**
 * Removes what kube-proxy in ipvs or iptables mode has left: its interface, chains and ipsets. Unlike `kube-proxy
 * --cleanup`, it leaves the virtual servers that kpng-ipvs has taken over with their connections, and those of other
 * programs; it deletes the rest of kube-proxy's.
 *
 * `--cleanup-kube-proxy` runs it, while kpng-ipvs serves. Separate from `removeObjects`, which removes our own objects.
 *
 * Errors: MOVE_TOO_EARLY if kpng-ipvs has no addresses yet, READ_FAILED; then nothing has changed. Afterwards it goes
 * on after a failure and throws the first one, as `removeObjects` does.
 */
export async function removeKubeProxy(options: RemoveKubeProxyOptions): Promise<void> {
  const { names, runTool, log, localAddresses, excludedCIDRs } = options;
  const serviceAddresses = await readServedAddresses(options);
  // Without the ipsets, all virtual servers that kpng-ipvs has taken over would seem to be kube-proxy's.
  const saved = await runTool.read(["ipset", "save"]);
  const servers = await readServers(runTool);
  const failures = new CleanupFailures(log);
  // First the addresses: afterwards no packet reaches the node's own ports through them.
  await failures.attempt(() => deleteInterface(runTool, kubeProxyInterface));
  for (const family of families) {
    const left = kubeProxyServers({
      ...{ servers, sets: saved, names, family, serviceAddresses, excludedCIDRs },
      localAddresses: localAddresses[family],
    });
    const isDeleted = await failures.attempt(async () => {
      const lines = left.map((server) => `-D ${server}`);
      if (lines.length > 0) await runTool.write(["ipvsadm", "-R"], lines);
      return true;
    });
    const rules = await failures.attempt(() => removeChains(runTool, family, isKubeProxyChain));
    // Another cleanup needs these ipsets to know which virtual servers are kube-proxy's.
    const sets = isDeleted === true ? setsIn(saved, family) : [];
    await destroySets(runTool, failures, sets);
    if (isDeleted === undefined || rules === undefined) continue;
    log.info("kube-proxy removed", { family, virtualServers: left.length, rules, sets: sets.length });
  }
  failures.end();
}

/**
 * Returns the addresses of kube-proxy's interface, after a check that kpng-ipvs has addresses of each of their
 * families: a sync adds its addresses last, all at once.
 */
async function readServedAddresses({ names, runTool }: RemoveKubeProxyOptions): Promise<ReadonlySet<string>> {
  const all = await runTool.read(["ip", "-o", "address", "show"]);
  const familiesOf = (addresses: ReadonlySet<string>): ReadonlySet<Family> =>
    new Set([...addresses].map((address) => (address.includes(":") ? "v6" : "v4")));
  const [ours, theirs] = [addressesOn(all, names.interfaceName), addressesOn(all, kubeProxyInterface)];
  if (ours.size > 0 && familiesOf(theirs).isSubsetOf(familiesOf(ours))) return theirs;
  const reason = `${names.interfaceName} lacks the service addresses, so kpng-ipvs does not serve yet`;
  throw new BackendIpvsError("MOVE_TOO_EARLY", `nothing removed: ${reason}`);
}

/** Returns the names of kube-proxy's ipsets that the output of `ipset save` has. */
function setsIn(saved: string, family: Family): readonly string[] {
  return kubeProxySets.map((set) => kubeProxySetName(family, set)).filter((name) => saved.includes(`create ${name} `));
}
