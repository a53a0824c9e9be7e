import { parseLinkAddresses } from "@kpng/backend-kit/node-addresses/local-addresses.ts";
import { type Family, isLinkLocal, withoutDottedIPv6 } from "@kpng/model/address.ts";
import {
  type ObjectKind,
  type ObjectNames,
  parseServer,
  type ServerId,
  type SetRole,
  serverOfReal,
  setName,
  setRoles,
} from "../render/kernel-objects.ts";
import type { RunTool } from "./run-tool.ts";

/** Everything in the kernel that may belong to this instance. */
export interface ReadObjects {
  /** Our own objects, and virtual servers for which `isRecognized` returned true. */
  readonly objects: ReadonlyMap<ObjectKind, Map<string, string>>;
  /** The roles for which an ipset of ours exists. */
  readonly sets: ReadonlySet<SetRole>;
  /** Whether our interface exists and is up. If it is down, the node does not answer at its addresses. */
  readonly isInterfaceUp: boolean;
  /**
   * Whether kube-proxy is in ipvs mode: only this mode has the ipset CLUSTER-IP, which it creates first in each sync.
   */
  readonly hasKubeProxySets: boolean;
}

interface ReadOptions {
  /** True for virtual servers at the address and port of a Service. Default: none. */
  readonly isRecognized?: (server: ServerId) => boolean;
  /** Output of {@link readServers}. Default: this function is called. */
  readonly servers?: string | Promise<string>;
}

/**
 * Reads the objects of one family that belong to this instance: addresses of its interface, elements of its ipsets,
 * virtual servers that the sets SERVERS and MARKS record as ours, and virtual servers for which `isRecognized` returns
 * true. These servers are included because two programs cannot have a virtual server at the same address and port. All
 * other virtual servers are foreign and left out.
 *
 * Errors: READ_FAILED, TOOL_MISSING. *Cost:* four processes.
 */
export async function readObjects(
  runTool: RunTool,
  names: ObjectNames,
  family: Family,
  { isRecognized = () => false, servers = readServers(runTool) }: ReadOptions = {},
): Promise<ReadObjects> {
  const [saved, links, addresses, savedServers] = await Promise.all([
    runTool.read(["ipset", "save"]),
    runTool.read(["ip", "-o", "link", "show"]),
    runTool.read(["ip", "-o", family === "v4" ? "-4" : "-6", "address", "show"]),
    servers,
  ]);
  const sets = parseSets(withoutDottedIPv6(saved), names, family);
  const isOurs = (server: ServerId): boolean => isRecorded(server, sets, family) || isRecognized(server);
  const objects = new Map<ObjectKind, Map<string, string>>(sets);
  const ours = addressesOn(withoutDottedIPv6(addresses), names.interfaceName);
  objects.set("address", new Map(Array.from(ours, (address) => [address, ""])));
  for (const [kind, ofKind] of parseServers(withoutDottedIPv6(savedServers), isOurs)) objects.set(kind, ofKind);
  return {
    objects,
    sets: new Set(sets.keys()),
    isInterfaceUp: parseLink(links, names.interfaceName) === "up",
    hasKubeProxySets: /^create KUBE-(?:6-)?CLUSTER-IP /m.test(saved),
  };
}

/**
 * Returns the virtual servers of both families in the format in which ipvsadm saves them. Errors: READ_FAILED,
 * TOOL_MISSING.
 */
export async function readServers(runTool: RunTool): Promise<string> {
  return await runTool.read(["ipvsadm", "-S", "-n"]);
}

/** True if the ipsets of a family record a virtual server as ours. */
export function isRecorded(
  server: ServerId,
  sets: ReadonlyMap<SetRole, ReadonlyMap<string, string>>,
  family: Family,
): boolean {
  const parts = parseServer(server);
  if (parts?.family !== family) return false;
  return sets.get(parts.kind === "mark" ? "MARKS" : "SERVERS")?.has(parts.element) === true;
}

/**
 * Parses the output of `ip -o link show`. *Shape of a line:* `4: kube-ipvs0: <BROADCAST,NOARP,UP,LOWER_UP> mtu 1500`.
 */
export function parseLink(text: string, interfaceName: string): "missing" | "down" | "up" {
  const [, flags] = new RegExp(`^\\d+: ${interfaceName}(?:@\\S+)?: <(.*?)>`, "m").exec(text) ?? [];
  if (flags === undefined) return "missing";
  return flags.split(",").includes("UP") ? "up" : "down";
}

/** Parses the output of `ipset save`. The result has an entry for each set that exists, even if it has no elements. */
export function parseSets(text: string, names: ObjectNames, family: Family): Map<SetRole, Map<string, string>> {
  const roleByName = new Map(setRoles.map((role) => [setName(names, family, role), role]));
  const sets = new Map<SetRole, Map<string, string>>();
  for (const line of text.split("\n")) {
    const [verb, name = "", key = "", ...value] = line.trim().split(" ");
    const role = roleByName.get(name);
    if (role === undefined) continue;
    if (verb === "create") sets.set(role, new Map());
    else if (verb === "add") sets.get(role)?.set(key, value.join(" "));
  }
  return sets;
}

/** Returns the addresses of an interface in the output of `ip -o address show`, except link-local ones. */
export function addressesOn(text: string, interfaceName: string): ReadonlySet<string> {
  return new Set(
    parseLinkAddresses(text).flatMap(([link, address]) =>
      link === interfaceName && !isLinkLocal(address) ? [address] : [],
    ),
  );
}

/**
 * Parses the output of `ipvsadm -S -n`. *Shape of a line:* `-A -t 10.96.0.1:80 -s rr -p 10800`, `-a -t 10.96.0.1:80 -r
 * 10.1.1.7:8080 -m -w 1`.
 */
export function parseServers(
  text: string,
  isOurs: (server: ServerId) => boolean,
): ReadonlyMap<"server" | "real", Map<string, string>> {
  const servers = new Map<string, string>();
  const reals = new Map<string, string>();
  for (const line of text.split("\n")) {
    const [, server, value] = /^-A (.+?) (-s .*)$/.exec(line.trim()) ?? [];
    if (server !== undefined && value !== undefined) {
      if (isOurs(server)) servers.set(server, value);
      continue;
    }
    const [, real, options] = /^-a (.+? -r \S+) (.*)$/.exec(line.trim()) ?? [];
    if (real === undefined || options === undefined || !isOurs(serverOfReal(real))) continue;
    // A real server without -m is not ours and must be replaced, so its options are kept unchanged.
    reals.set(real, options.startsWith("-m ") ? options.slice(3) : options);
  }
  return new Map([
    ["server", servers],
    ["real", reals],
  ]);
}
