import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { networkInterfaces } from "node:os";
import { type AddressSet, type Family, toAddressSet } from "@kpng/model/address.ts";
import { toolEnvironment } from "../exec/tool-environment.ts";

/**
 * Names of interfaces that carry addresses of Services: those of kpng-ipvs, without and with a proxy name, and that of
 * kube-proxy in ipvs mode, beside which a backend runs while a node moves from one to the other.
 */
const serviceInterfaces = /^(?:kpng-ipvs0|kpngv-[0-9a-f]{8}|kube-ipvs0)$/;

/**
 * Returns the addresses at which this machine receives packets, including loopback and link-local ones, without zones.
 * They decide where node ports answer: `proxyBackend` reads them for service plans and health checks, as do the backend
 * `healthchecks`, shadow mode and kpng-userspace. Separate from the service plans, which are pure.
 *
 * Node.js omits links without carrier, although the kernel accepts packets for their addresses from every other link.
 * So the addresses come from the kernel's own tables; Node.js's list is used where /proc does not have them.
 *
 * Addresses of {@link serviceInterfaces} are left out unless another interface has them too: they belong to Services,
 * so node ports do not answer there.
 *
 * *Cost:* a family is read when it is first accessed. 5 000 IPv4 routes take 11 ms.
 */
export function readLocalAddresses(): AddressSet {
  const known = new Map<Family, readonly string[]>();
  const read = (family: Family): readonly string[] => {
    const addresses = known.get(family) ?? readFamily(family);
    known.set(family, addresses);
    return addresses;
  };
  return {
    get v4() {
      return read("v4");
    },
    get v6() {
      return read("v6");
    },
  };
}

function readFamily(family: Family): readonly string[] {
  const [path, parse] = family === "v4" ? (["fib_trie", parseFibTrie] as const) : (["if_inet6", parseIfInet6] as const);
  const addresses = toAddressSet(parse(readTable(path) ?? "") ?? interfaceAddresses()).set[family];
  const links = [...(readTable("dev") ?? "").matchAll(/^ *([^\s:]+):/gm)].map(([, name = ""]) => name);
  const ofServices = links.filter((name) => serviceInterfaces.test(name));
  if (ofServices.length === 0) return addresses;
  const excluded = addressesOnlyOf(ofServices);
  return addresses.filter((address) => !excluded.has(address));
}

/** Returns the addresses that only these interfaces have. */
function addressesOnlyOf(names: readonly string[]): ReadonlySet<string> {
  const [own, others]: [string[], string[]] = [[], []];
  for (const [each, address] of linkAddresses(names)) (names.includes(each) ? own : others).push(address);
  const taken = toAddressSet(others).set;
  const isTaken = new Set([...taken.v4, ...taken.v6]);
  const { v4, v6 } = toAddressSet(own).set;
  return new Set([...v4, ...v6].filter((address) => !isTaken.has(address)));
}

/**
 * Returns the addresses of all links. Node.js omits links that are down, as that of kube-proxy always is, but the
 * kernel keeps the local routes of their IPv4 addresses. So the program `ip` is asked if the list of Node.js lacks one
 * of `names`.
 */
function linkAddresses(names: readonly string[]): readonly (readonly [link: string, address: string])[] {
  const known = Object.entries(networkInterfaces());
  if (names.every((name) => known.some(([each]) => each === name))) {
    return known.flatMap(([each, list = []]) => list.map(({ address }) => [each, address] as const));
  }
  const { stdout } = spawnSync("ip", ["-o", "address", "show"], {
    encoding: "utf8",
    env: toolEnvironment(),
    timeout: 30_000,
    maxBuffer: 64 * 1024 * 1024,
  });
  return parseLinkAddresses(stdout ?? "");
}

/**
 * Parses the output of `ip -o address show`, also for kpng-ipvs. *Shape of a line:* `4: kpng-ipvs0    inet 10.96.0.1/32
 * scope host …`. Pure.
 */
export function parseLinkAddresses(text: string): readonly (readonly [link: string, address: string])[] {
  const lines = text.matchAll(/^\d+: ([^\s@]+)\S*\s+inet6? ([0-9a-f.:]+)/gm);
  return [...lines].map(([, link = "", address = ""]) => [link, address]);
}

/** Returns the text of a table in /proc; undefined if the kernel has no such table. */
function readTable(name: string): string | undefined {
  try {
    return readFileSync(`/proc/net/${name}`, "utf8");
  } catch {
    return undefined;
  }
}

/**
 * Returns the IPv4 addresses with a local route; undefined if there is none. *Shape of `text`:* a line `|-- 10.0.0.1`
 * for an address, followed by lines for its routes, e.g. `/32 host LOCAL`. Pure.
 */
export function parseFibTrie(text: string): readonly string[] | undefined {
  const local = new Set(
    [...text.matchAll(/\|-- (\S+)\n(?: +\/\d+ .*\n)*? +\/32 host LOCAL/g)].map(([, at = ""]) => at),
  );
  return local.size === 0 ? undefined : [...local];
}

/** Flags of an address that must not be used: duplicate address detection failed, or has not ended. */
const unusableFlags = 0x48;

/**
 * Returns the usable IPv6 addresses; undefined if there is none. *Shape of a line:*
 * `fd080000000000000000000000000001 03 40 00 82 eth0`, where the fifth word holds the flags. Pure.
 */
export function parseIfInet6(text: string): readonly string[] | undefined {
  const lines = [...text.matchAll(/^([0-9a-f]{32}) \S+ \S+ \S+ ([0-9a-f]+) /gm)];
  const usable = lines.filter(([, , flags = ""]) => (Number.parseInt(flags, 16) & unusableFlags) === 0);
  return usable.length === 0 ? undefined : usable.map(([, digits = ""]) => digits.match(/.{4}/g)?.join(":") ?? "");
}

function interfaceAddresses(): readonly string[] {
  const all = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  return all.map(({ address }) => address.replace(/%.*$/, ""));
}
