import type { Family } from "@kpng/model/address.ts";
import { isIn } from "@kpng/model/cidr.ts";
import { parseServer, type ServerId } from "../render/kernel-objects.ts";
import { kubeProxyFrontendSets, kubeProxySetName } from "../render/kube-proxy-names.ts";
import type { ObjectNames } from "../render/object-names.ts";
import { isRecorded, parseSets } from "./read-objects.ts";

interface KubeProxyServersInput {
  /** Output of `ipvsadm -S -n`. */
  readonly servers: string;
  /** Output of `ipset save`. */
  readonly sets: string;
  readonly names: ObjectNames;
  readonly family: Family;
  /** Addresses of kube-proxy's interface. */
  readonly serviceAddresses: ReadonlySet<string>;
  /** The node's own addresses, where node ports answer. */
  readonly localAddresses: readonly string[];
  /** Addresses at which virtual servers belong to other programs. */
  readonly excludedCIDRs: readonly string[];
}

/**
 * Returns the virtual servers that kube-proxy has left and that are not recorded as ours: those at addresses of its
 * interface, or whose address and port its ipsets have. Their Services were deleted while no proxy ran, or as
 * kube-proxy stopped, or they are node ports at addresses where ours do not answer. Pure.
 *
 * `removeKubeProxy` deletes them. Separate from `readObjects`, which knows only our own ipsets.
 */
export function kubeProxyServers(input: KubeProxyServersInput): readonly ServerId[] {
  const { family, serviceAddresses, localAddresses, excludedCIDRs } = input;
  const own = parseSets(input.sets, input.names, family);
  const elements = (...sets: Parameters<typeof kubeProxySetName>[1][]): ReadonlySet<string> => {
    const wanted = new Set(sets.map((set) => kubeProxySetName(family, set)));
    const adds = input.sets.split("\n").map((line) => line.split(" "));
    return new Set(adds.flatMap(([verb, set = "", key = ""]) => (verb === "add" && wanted.has(set) ? [key] : [])));
  };
  const frontends = elements(...kubeProxyFrontendSets);
  const nodePorts = { tcp: elements("NODE-PORT-TCP"), udp: elements("NODE-PORT-UDP"), sctp: new Set<string>() };
  const ids = [...input.servers.matchAll(/^-A (.+?) -s /gm)].map(([, id = ""]) => id);
  return ids.filter((id) => {
    const parts = parseServer(id);
    if (parts?.kind !== "address" || parts.family !== family || isRecorded(id, own, family)) return false;
    const { address, element } = parts;
    if (excludedCIDRs.some((cidr) => isIn(address, cidr))) return false;
    const [, protocol = "", port = ""] = /,(.*):(.*)$/.exec(element) ?? [];
    const isNodePort = nodePorts[protocol as keyof typeof nodePorts]?.has(port) && localAddresses.includes(address);
    return serviceAddresses.has(address) || frontends.has(element) || isNodePort;
  });
}
