import { CleanupFailures } from "@kpng/backend-kit/proxy/cleanup-failures.ts";
import { type AddressSet, type Family, families, isIn, withoutDottedIPv6 } from "@kpng/model/address.ts";
import type { Log } from "@kpng/process/log.ts";
import { addressesOn, isRecorded, parseSets, readServers } from "../read/read-objects.ts";
import type { RunTool } from "../read/run-tool.ts";
import { BackendIpvsError, type ObjectNames, parseServer, type ServerId } from "../render/kernel-objects.ts";
import { destroySets, removeChains } from "./remove-objects.ts";

interface RemoveKubeProxyOptions {
  readonly names: ObjectNames;
  readonly runTool: RunTool;
  readonly log: Log;
  /** The node's own addresses, without Service addresses. */
  readonly localAddresses: AddressSet;
  readonly excludedCIDRs: readonly string[];
}

/**
 * Removes the chains and ipsets that kube-proxy in ipvs or iptables mode has left, and those of its virtual servers
 * that no Service needs any more. It keeps the interface, the virtual servers that kpng-ipvs has taken over (their
 * connections go on), and the virtual servers of other programs; `kube-proxy --cleanup` would delete all of these.
 *
 * `--cleanup-kube-proxy` runs this function while kpng-ipvs serves. It must run in the default instance, which shares
 * kube-proxy's interface.
 *
 * Errors: MOVE_TOO_EARLY if kpng-ipvs does not serve yet, or READ_FAILED; in both cases nothing has changed. After the
 * first change it continues in spite of failures and then throws the first one, as `removeObjects` does.
 */
export async function removeKubeProxy(options: RemoveKubeProxyOptions): Promise<void> {
  const { runTool, log } = options;
  // The ipsets must be read before anything is removed: without them, the virtual servers that kpng-ipvs has taken over
  // would seem to be kube-proxy's.
  const saved = withoutDottedIPv6(await runTool.read(["ipset", "save"]));
  const serviceAddresses = await readServedAddresses(options, saved);
  const servers = await readServers(runTool);
  const failures = new CleanupFailures(log);
  for (const family of families) {
    const abandoned = kubeProxyServers(options, family, servers, saved, serviceAddresses);
    const isDeleted = await failures.attempt(async () => {
      const lines = abandoned.map((server) => `-D ${server}`);
      if (lines.length > 0) await runTool.write(["ipvsadm", "-R"], lines);
      return true;
    });
    const rules = await failures.attempt(() => removeChains(runTool, family, (chain) => kubeProxyChain.test(chain)));
    // If virtual servers could not be deleted, the next cleanup needs these ipsets to know which of them are
    // kube-proxy's.
    const sets = isDeleted === true ? setsIn(saved, family) : [];
    await destroySets(runTool, failures, sets);
    if (isDeleted === undefined || rules === undefined) continue;
    log.info("kube-proxy removed", { family, virtualServers: abandoned.length, rules, sets: sets.length });
  }
  failures.end();
}

/**
 * Returns the addresses on the interface, after checking that kpng-ipvs has taken it over. The first sync of kpng-ipvs
 * records the addresses of Services and, as its last step, deletes all others; so when every address is recorded, that
 * sync is over.
 */
async function readServedAddresses(
  { names, runTool }: RemoveKubeProxyOptions,
  saved: string,
): Promise<ReadonlySet<string>> {
  const all = withoutDottedIPv6(await runTool.read(["ip", "-o", "address", "show"]));
  const addresses = addressesOn(all, names.interfaceName);
  const sets = families.map((family) => parseSets(saved, names, family));
  const recorded = new Set(sets.flatMap((each) => [...(each.get("ADDRESSES")?.keys() ?? [])]));
  if (addresses.size > 0 && addresses.isSubsetOf(recorded)) return addresses;
  const reason = `kpng-ipvs has not finished its first sync: ${names.interfaceName} lacks its service addresses`;
  throw new BackendIpvsError("MOVE_TOO_EARLY", `nothing removed: ${reason}`);
}

/**
 * Returns the virtual servers that are kube-proxy's and not recorded as ours: virtual servers at addresses on the
 * interface, or with an address and port that are in kube-proxy's ipsets. Either their Services were deleted while no
 * proxy was running, or they belong to node ports at addresses where our node ports do not answer. Pure.
 *
 * `servers` is the output of `ipvsadm -S -n`, `saved` that of `ipset save`, with IPv6 addresses in canonical form.
 */
function kubeProxyServers(
  { names, localAddresses, excludedCIDRs }: RemoveKubeProxyOptions,
  family: Family,
  servers: string,
  saved: string,
  serviceAddresses: ReadonlySet<string>,
): readonly ServerId[] {
  const ourSets = parseSets(saved, names, family);
  const elementsOf = (sets: string): ReadonlySet<string | undefined> => {
    const pattern = new RegExp(`^add KUBE-${family === "v6" ? "6-" : ""}(?:${sets}) (\\S+)`, "gm");
    return new Set(Array.from(saved.matchAll(pattern), ([, element]) => element));
  };
  const frontends = elementsOf("CLUSTER-IP|EXTERNAL-IP|EXTERNAL-IP-LOCAL|LOAD-BALANCER|NODE-PORT-SCTP-HASH");
  const nodePorts = new Map(["tcp", "udp"].map((each) => [each, elementsOf(`NODE-PORT-${each.toUpperCase()}`)]));
  const ids = [...servers.matchAll(/^-A (.+?) -s /gm)].map(([, id = ""]) => id);
  return ids.filter((id) => {
    const parts = parseServer(id);
    if (parts?.kind !== "address" || parts.family !== family || isRecorded(id, ourSets, family)) return false;
    const { address, element } = parts;
    if (excludedCIDRs.some((cidr) => isIn(address, cidr))) return false;
    const [, protocol = "", port] = /,(.*):(.*)$/.exec(element) ?? [];
    const isNodePort = nodePorts.get(protocol)?.has(port) && localAddresses[family].includes(address);
    return serviceAddresses.has(address) || frontends.has(element) || isNodePort;
  });
}

// The prefix KUBE- alone does not identify what is kube-proxy's: kubelet uses it for chains, and kube-router for the
// chains and ipsets of network policies. Source: kube-proxy 1.36, ipvs/cleanup.go, ipvs/ipset.go, iptables/cleanup.go.

/** Returns the names of kube-proxy's ipsets of one family in the output of `ipset save`. */
function setsIn(saved: string, family: Family): readonly string[] {
  const names = "CLUSTER-IP|EXTERNAL-IP|LOAD-BALANCER|NODE-PORT|LOOP-BACK|HEALTH-CHECK-NODE-PORT|IPVS-IPS";
  const pattern = new RegExp(`^create (KUBE-${family === "v6" ? "6-" : ""}(?:${names})\\S*) `, "gm");
  return Array.from(saved.matchAll(pattern), ([, name = ""]) => name);
}

/** Matches the chains of both modes, those of iptables mode, and those of a Service, whose names end in a hash. */
const kubeProxyChain = new RegExp(
  `^KUBE-(?:${[
    "SERVICES|POSTROUTING|MARK-MASQ|FORWARD|PROXY-FIREWALL|NODE-PORT|LOAD-BALANCER|SOURCE-RANGES-FIREWALL",
    "IPVS-FILTER|IPVS-OUT-FILTER",
    "EXTERNAL-SERVICES|NODEPORTS|PROXY-CANARY",
    "(?:SVC|SVL|FW|EXT|SEP)-[A-Z0-9]{16}",
  ].join("|")})$`,
);
