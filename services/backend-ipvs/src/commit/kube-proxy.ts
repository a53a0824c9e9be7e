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
  const { names, runTool, log, localAddresses, excludedCIDRs } = options;
  // The ipsets must be read before anything is removed: without them, the virtual servers that kpng-ipvs has taken over
  // would seem to be kube-proxy's.
  const saved = withoutDottedIPv6(await runTool.read(["ipset", "save"]));
  const serviceAddresses = await readServedAddresses(options, saved);
  const servers = await readServers(runTool);
  const failures = new CleanupFailures(log);
  for (const family of families) {
    const abandoned = kubeProxyServers({
      servers,
      sets: saved,
      names,
      family,
      serviceAddresses,
      excludedCIDRs,
      localAddresses: localAddresses[family],
    });
    const isDeleted = await failures.attempt(async () => {
      const lines = abandoned.map((server) => `-D ${server}`);
      if (lines.length > 0) await runTool.write(["ipvsadm", "-R"], lines);
      return true;
    });
    const rules = await failures.attempt(() => removeChains(runTool, family, isKubeProxyChain));
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

/** Returns the names of those kube-proxy ipsets that occur in the output of `ipset save`. */
function setsIn(saved: string, family: Family): readonly string[] {
  return kubeProxySets.map((set) => kubeProxySetName(family, set)).filter((name) => saved.includes(`create ${name} `));
}

interface KubeProxyServersInput {
  /** Output of `ipvsadm -S -n`. */
  readonly servers: string;
  /** Output of `ipset save`, with IPv6 addresses in canonical form. */
  readonly sets: string;
  readonly names: ObjectNames;
  readonly family: Family;
  /** Addresses on the interface; see {@link readServedAddresses}. */
  readonly serviceAddresses: ReadonlySet<string>;
  /** The node's own addresses, where node ports answer. */
  readonly localAddresses: readonly string[];
  /** Addresses at which virtual servers belong to other programs. */
  readonly excludedCIDRs: readonly string[];
}

/**
 * Returns the virtual servers that are kube-proxy's and not recorded as ours: virtual servers at addresses on the
 * interface, or with an address and port that are in kube-proxy's ipsets. Either their Services were deleted while no
 * proxy was running, or they belong to node ports at addresses where our node ports do not answer. Pure.
 */
function kubeProxyServers(input: KubeProxyServersInput): readonly ServerId[] {
  const { family, serviceAddresses, localAddresses, excludedCIDRs } = input;
  const ourSets = parseSets(input.sets, input.names, family);
  const elements = (...sets: Parameters<typeof kubeProxySetName>[1][]): ReadonlySet<string> => {
    const desired = new Set(sets.map((set) => kubeProxySetName(family, set)));
    const adds = input.sets.split("\n").map((line) => line.split(" "));
    return new Set(adds.flatMap(([verb, set = "", key = ""]) => (verb === "add" && desired.has(set) ? [key] : [])));
  };
  const frontends = elements(...kubeProxyFrontendSets);
  // The ipset of SCTP node ports, one of `kubeProxyFrontendSets`, contains addresses.
  const nodePorts = { tcp: elements("NODE-PORT-TCP"), udp: elements("NODE-PORT-UDP"), sctp: new Set<string>() };
  const ids = [...input.servers.matchAll(/^-A (.+?) -s /gm)].map(([, id = ""]) => id);
  return ids.filter((id) => {
    const parts = parseServer(id);
    if (parts?.kind !== "address" || parts.family !== family || isRecorded(id, ourSets, family)) return false;
    const { address, element } = parts;
    if (excludedCIDRs.some((cidr) => isIn(address, cidr))) return false;
    const [, protocol = "", port = ""] = /,(.*):(.*)$/.exec(element) ?? [];
    const isNodePort = nodePorts[protocol as keyof typeof nodePorts]?.has(port) && localAddresses.includes(address);
    return serviceAddresses.has(address) || frontends.has(element) || isNodePort;
  });
}

/**
 * Names of the chains that kube-proxy has in the kernel, without the prefix KUBE-. The prefix alone would not identify
 * them, because other programs use it, too: kubelet for chains, and kube-router for the chains and ipsets of network
 * policies.
 *
 * *Source:* kube-proxy 1.36, `ipvs/cleanup.go`, `ipvs/ipset.go` and `iptables/cleanup.go`.
 */
const chains: ReadonlySet<string> = new Set(
  [
    // Chains of both modes.
    "SERVICES",
    "POSTROUTING",
    "MARK-MASQ",
    "FORWARD",
    "PROXY-FIREWALL",
    "NODE-PORT",
    "LOAD-BALANCER",
    "SOURCE-RANGES-FIREWALL",
    "IPVS-FILTER",
    "IPVS-OUT-FILTER",
    // Chains of iptables mode.
    "EXTERNAL-SERVICES",
    "NODEPORTS",
    "PROXY-CANARY",
  ].map((name) => `KUBE-${name}`),
);

/** Ipsets of ipvs mode whose elements contain the address and port of virtual servers. */
const kubeProxyFrontendSets = [
  "CLUSTER-IP",
  "EXTERNAL-IP",
  "EXTERNAL-IP-LOCAL",
  "LOAD-BALANCER",
  "NODE-PORT-SCTP-HASH",
] as const;

const otherSets = [
  "LOOP-BACK",
  "LOAD-BALANCER-LOCAL",
  "LOAD-BALANCER-FW",
  "LOAD-BALANCER-SOURCE-IP",
  "LOAD-BALANCER-SOURCE-CIDR",
  "NODE-PORT-TCP",
  "NODE-PORT-LOCAL-TCP",
  "NODE-PORT-UDP",
  "NODE-PORT-LOCAL-UDP",
  "NODE-PORT-LOCAL-SCTP-HASH",
  "HEALTH-CHECK-NODE-PORT",
  "IPVS-IPS",
] as const;

/** An ipset of kube-proxy. *Shape:* `CLUSTER-IP` for `KUBE-CLUSTER-IP`. */
type KubeProxySet = (typeof kubeProxyFrontendSets | typeof otherSets)[number];

/** All ipsets of ipvs mode. */
const kubeProxySets: readonly KubeProxySet[] = [...kubeProxyFrontendSets, ...otherSets];

/** Returns the name of an ipset, which kube-proxy truncates to 31 characters. */
function kubeProxySetName(family: Family, set: KubeProxySet): string {
  return `KUBE-${family === "v6" ? "6-" : ""}${set}`.slice(0, 31);
}

/** True for a chain of kube-proxy in ipvs or iptables mode. The names of chains for a single Service end in a hash. */
function isKubeProxyChain(chain: string): boolean {
  return chains.has(chain) || /^KUBE-(?:SVC|SVL|FW|EXT|SEP)-[A-Z0-9]{16}$/.test(chain);
}
