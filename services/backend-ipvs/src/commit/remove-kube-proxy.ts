import { CleanupFailures } from "@kpng/backend-kit/proxy/cleanup-failures.ts";
import { type AddressSet, type Family, families, withoutDottedIPv6 } from "@kpng/model/address.ts";
import type { Log } from "@kpng/process/log.ts";
import { kubeProxyServers } from "../read/kube-proxy-servers.ts";
import { addressesOn, parseSets, readServers } from "../read/read-objects.ts";
import type { RunTool } from "../read/run-tool.ts";
import { BackendIpvsError } from "../render/ipvs-error.ts";
import { isKubeProxyChain, kubeProxySetName, kubeProxySets } from "../render/kube-proxy-names.ts";
import type { ObjectNames } from "../render/object-names.ts";
import { handedOver, recordIn } from "../render/record-element.ts";
import { destroySets } from "./destroy-sets.ts";
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
 * Removes what kube-proxy in ipvs or iptables mode has left: its chains and ipsets. Unlike `kube-proxy --cleanup`, it
 * leaves the interface, and the virtual servers that kpng-ipvs has taken over with their connections, and those of
 * other programs; it deletes the rest of kube-proxy's.
 *
 * `--cleanup-kube-proxy` runs it, while kpng-ipvs serves. Separate from `removeObjects`, which removes our own objects.
 *
 * Errors: MOVE_TOO_EARLY if kpng-ipvs does not serve yet, READ_FAILED; then nothing has changed. Afterwards it goes
 * on after a failure and throws the first one, as `removeObjects` does.
 */
export async function removeKubeProxy(options: RemoveKubeProxyOptions): Promise<void> {
  const { names, runTool, log, localAddresses, excludedCIDRs } = options;
  // Without the ipsets, all virtual servers that kpng-ipvs has taken over would seem to be kube-proxy's.
  const saved = await runTool.read(["ipset", "save"]);
  const serviceAddresses = await readServedAddresses(options, saved);
  const servers = await readServers(runTool);
  const failures = new CleanupFailures(log);
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
 * Returns the addresses of Services, after a check that kpng-ipvs has taken over the interface: its first sync records
 * the addresses that Services have, and deletes all others last.
 */
async function readServedAddresses(
  { names, runTool }: RemoveKubeProxyOptions,
  saved: string,
): Promise<ReadonlySet<string>> {
  const all = withoutDottedIPv6(await runTool.read(["ip", "-o", "address", "show"]));
  const addresses = addressesOn(all, names.interfaceName);
  const sets = families.map((family) => parseSets(withoutDottedIPv6(saved), names, family));
  const recorded = new Set(sets.flatMap((each) => [...(each.get("ADDRESSES")?.keys() ?? [])]));
  const isHandedOver = sets.some((each) => recordIn(each) === handedOver);
  if (!isHandedOver && addresses.size > 0 && addresses.isSubsetOf(recorded)) return addresses;
  const reason = `${names.interfaceName} has not the service addresses of kpng-ipvs, so it does not serve yet`;
  throw new BackendIpvsError("MOVE_TOO_EARLY", `nothing removed: ${reason}`);
}

/** Returns the names of kube-proxy's ipsets that the output of `ipset save` has. */
function setsIn(saved: string, family: Family): readonly string[] {
  return kubeProxySets.map((set) => kubeProxySetName(family, set)).filter((name) => saved.includes(`create ${name} `));
}
