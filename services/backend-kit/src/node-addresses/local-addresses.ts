import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { type AddressSet, type Family, families, parseCidr, toAddressSet } from "@kpng/model/address.ts";
import { realClock } from "@kpng/process/clock.ts";
import { type OptionSpec, repeatable } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import type { NodePortAddressRule } from "@kpng/service-plan/plan-node.ts";
import { toolEnvironment } from "../exec/run-program.ts";

/** Interfaces with Service addresses: of kube-proxy's ipvs mode and kpng-ipvs, and of kpng-ipvs with a proxy name. */
const serviceInterfaces = /^(?:kube-ipvs0|kpngv-[0-9a-f]{8})$/;

/**
 * Returns the addresses at which this machine receives packets, including loopback and link-local ones, without zones.
 * They come from the kernel's own tables: Node.js omits links without a carrier, but the kernel accepts packets for the
 * addresses of such a link on all other links.
 *
 * Addresses of {@link serviceInterfaces} belong to Services, so node ports do not answer there, and they are left out
 * unless another interface has them too. If the program `ip`, which lists the addresses of such an interface, fails,
 * some of them may be in the result; then `onFailure` is called.
 *
 * *Cost:* a family is read when it is accessed. 5 000 IPv4 Service addresses take 28 ms, because the kernel lists local
 * routes without their interfaces; 5 000 IPv6 addresses take 3 ms.
 */
export function readLocalAddresses(onFailure: () => void = () => undefined): AddressSet {
  return readWhenAccessed((family) => (family === "v4" ? readV4(onFailure) : readV6()));
}

function readWhenAccessed(read: (family: Family) => readonly string[]): AddressSet {
  return {
    get v4() {
      return read("v4");
    },
    get v6() {
      return read("v6");
    },
  };
}

function readV4(onFailure: () => void): readonly string[] {
  const addresses = parseFibTrie(readTable("fib_trie"));
  const links = [...readTable("dev").matchAll(/^ *([^\s:]+):/gm)].map(([, name = ""]) => name);
  if (!links.some(isOfServices)) return addresses;
  const known = Map.groupBy(ipv4OfLinks(onFailure), ([link]) => isOfServices(link));
  const addressesOf = (isService: boolean) => new Set(known.get(isService)?.map(([, address]) => address));
  const ofServices = addressesOf(true).difference(addressesOf(false));
  return addresses.filter((address) => !ofServices.has(address));
}

function readV6(): readonly string[] {
  return toAddressSet(parseIfInet6(readTable("if_inet6"))).set.v6;
}

const isOfServices = (link: string): boolean => serviceInterfaces.test(link);

type LinkAddress = readonly [link: string, address: string];

/**
 * Returns the IPv4 addresses of all links. If the program `ip` fails, some may be missing; then `onFailure` is called.
 * Blocks the thread until the program ends, because a plan reads the addresses through getters (`AddressSet`).
 */
export function ipv4OfLinks(onFailure: () => void): readonly LinkAddress[] {
  const { status, stdout } = spawnSync("ip", ["-o", "-4", "address", "show"], {
    encoding: "utf8",
    env: toolEnvironment(),
    timeout: 30_000,
    maxBuffer: 64 * 1024 * 1024,
  });
  // The status is null if the program could not be started or was killed after the timeout.
  if (status !== 0) onFailure();
  return parseLinkAddresses(stdout ?? "");
}

/** Parses `ip -o address show`. *Shape of a line:* `4: kube-ipvs0    inet 10.96.0.1/32 scope host …`. */
export function parseLinkAddresses(text: string): readonly LinkAddress[] {
  const lines = text.matchAll(/^\d+: ([^\s@]+)\S*\s+inet6? ([0-9a-f.:]+)/gm);
  return [...lines].map(([, link = "", address = ""]) => [link, address]);
}

function readTable(name: string): string {
  try {
    return readFileSync(`/proc/net/${name}`, "utf8");
  } catch {
    // The kernel has no such table, e.g. because IPv6 is disabled.
    return "";
  }
}

/**
 * Returns the IPv4 addresses with a local route. *Shape of `text`:* a line `|-- 10.0.0.1` for an address, followed by
 * lines for its routes, e.g. `/32 host LOCAL`.
 */
function parseFibTrie(text: string): readonly string[] {
  const local = text.matchAll(/\|-- (\S+)\n(?: +\/\d+ .*\n)*? +\/32 host LOCAL/g);
  return [...new Set([...local].map(([, at = ""]) => at))];
}

/** IFA_F_DADFAILED (0x08) and IFA_F_TENTATIVE (0x40): duplicate address detection has failed or has not ended. */
const unusableFlags = 0x48;

/**
 * Returns the usable IPv6 addresses of all interfaces except {@link serviceInterfaces}. *Shape of a line:*
 * `fd080000000000000000000000000001 03 40 00 82 eth0`, where the fifth word holds the flags.
 */
export function parseIfInet6(text: string): readonly string[] {
  return text.split("\n").flatMap((line) => {
    if (isOfServices(line.slice(line.lastIndexOf(" ") + 1))) return [];
    const [, digits = "", flags = ""] = /^([0-9a-f]{32}) \S+ \S+ \S+ ([0-9a-f]+) +\S+$/.exec(line) ?? [];
    if (digits === "" || (Number.parseInt(flags, 16) & unusableFlags) !== 0) return [];
    return digits.match(/.{4}/g)?.join(":") ?? [];
  });
}

const validMs = 1_000;

interface RecentAddressesOptions {
  readonly read?: ((onFailure: () => void) => AddressSet) | undefined;
  readonly nowMs?: (() => number) | undefined;
}

/**
 * The node's own addresses, as of the last reading.
 *
 * With 10 000 Service addresses on an interface, a reading takes longer than a sync of one Service. Therefore a sync of
 * given Services uses the last reading for a second, even if `FamilyRules` turns it into a full sync. If a reading
 * fails, the previous one is used, if there is one, and the next access reads again. `RuleSets` calls `forget` before
 * each check and before each sync of all Services, so a new address is used after the next check at the latest.
 *
 * *Bound:* the node's own addresses.
 */
export class RecentAddresses {
  readonly #options: RecentAddressesOptions;
  readonly #readings = new Map<Family, { readonly addresses: readonly string[]; readonly untilMs: number }>();

  constructor(options: RecentAddressesOptions = {}) {
    this.#options = options;
  }

  readonly read = (): AddressSet => readWhenAccessed((family) => this.#ofFamily(family));

  /** Makes the next access read the addresses. The last addresses are kept in case that reading fails. */
  readonly forget = (): void => {
    for (const [family, { addresses }] of this.#readings) {
      this.#readings.set(family, { addresses, untilMs: Number.NEGATIVE_INFINITY });
    }
  };

  #ofFamily(family: Family): readonly string[] {
    const { read = readLocalAddresses, nowMs = realClock.nowMs } = this.#options;
    const last = this.#readings.get(family);
    if (last !== undefined && nowMs() < last.untilMs) return last.addresses;
    let hasFailed = false;
    const addresses = read(() => {
      hasFailed = true;
    })[family];
    if (hasFailed) return last?.addresses ?? addresses;
    this.#readings.set(family, { addresses, untilMs: nowMs() + validMs });
    return addresses;
  }
}

/** Returns the families that the kernel supports, IPv4 first; IPv6 may be disabled. */
export function nodeFamilies(): readonly Family[] {
  return families.filter((family) => family === "v4" || existsSync("/proc/net/if_inet6"));
}

export const nodePortAddressesOption: OptionSpec = repeatable(
  "--nodeport-addresses <cidrs>",
  "serve node ports on local addresses in these CIDRs, or with `primary` on the first address of each family that the Node has (default: all)",
);

/** Parses CIDRs of both families, or `primary` alone; no value means all addresses. Errors: BAD_OPTION. */
export function parseNodePortAddresses(texts: readonly string[]): NodePortAddressRule {
  if (texts.includes("primary")) {
    if (texts.length === 1) return { kind: "primary" };
    throw new ProcessError("BAD_OPTION", "--nodeport-addresses: primary cannot be combined with CIDRs");
  }
  const cidrs = texts.map((text) => {
    const parsed = parseCidr(text);
    if (parsed !== undefined) return parsed.cidr;
    const reason = `--nodeport-addresses "${text}" is not a CIDR: write 10.0.0.0/8, fd00::/8 or primary`;
    throw new ProcessError("BAD_OPTION", reason);
  });
  return { kind: "cidrs", cidrs };
}
