import { readFileSync } from "node:fs";
import { parseAddress } from "@kpng/model/address.ts";
import type { Protocol } from "@kpng/model/service.ts";
import { familyOfMark } from "../render/firewall-marks.ts";
import { addressServer, markServer, realKey, type ServerId } from "../render/kernel-objects.ts";

/** Attempts to read the connections while virtual servers change. */
const mostReads = 5;

/**
 * Returns the number of connections of each real server in the kernel, closing ones included. It reads a file of /proc,
 * because that is cheaper than a process.
 *
 * The kernel gives the file in pages. Between two of them the other family may add or delete virtual servers: then
 * lines are skipped, and real servers seem to belong to another virtual server. So two successive reads must list the
 * same real servers. Returns nothing if none of five do.
 *
 * `IpvsRuleSet` calls it to find the real servers that have drained. Separate from `readObjects`, which reads no
 * connections and is called less often.
 */
export function readConnectionCounts(
  read: () => string = () => readFileSync("/proc/net/ip_vs", "utf8"),
): ReadonlyMap<string, number> {
  let before: string | undefined;
  for (let count = 0; count < mostReads; count++) {
    const counts = parseConnectionCounts(read());
    const keys = [...counts.keys()].join("\n");
    if (keys === before) return counts;
    before = keys;
  }
  return new Map();
}

/**
 * Parses /proc/net/ip_vs. *Shape:* a line `TCP  0A600001:0050 rr` for a virtual server, followed by lines `  ->
 * 0A010107:1F90 Masq 1 3 2` for its real servers: weight, active and inactive connections. Pure.
 */
export function parseConnectionCounts(text: string): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  let server: ServerId | undefined;
  for (const line of text.split("\n")) {
    const [first = "", place = "", , , active, inactive] = line.trim().split(/\s+/);
    if (first === "->") {
      const real = parsePlace(place);
      if (server === undefined || real === undefined) continue;
      counts.set(realKey(server, real.address, real.port), Number(active) + Number(inactive));
    } else server = parseServerLine(first, place);
  }
  return counts;
}

function parseServerLine(protocol: string, place: string): ServerId | undefined {
  if (protocol === "FWM") {
    const mark = Number.parseInt(place, 16);
    return markServer(mark, familyOfMark(mark));
  }
  const at = parsePlace(place);
  if (at === undefined || (protocol !== "TCP" && protocol !== "UDP" && protocol !== "SCTP")) return undefined;
  return addressServer(at.address, protocol satisfies Protocol, at.port);
}

/** *Shape:* `0A600001:0050` or `[fd00:…]:0050`. */
function parsePlace(text: string): { readonly address: string; readonly port: number } | undefined {
  const [, digits, colons, port = ""] = /^(?:([0-9A-F]{8})|\[([0-9a-f:]+)\]):([0-9A-F]{4})$/.exec(text) ?? [];
  const v4 = digits?.match(/../g)?.map((byte) => Number.parseInt(byte, 16));
  const address = parseAddress(v4?.join(".") ?? colons ?? "")?.address;
  return address === undefined ? undefined : { address, port: Number.parseInt(port, 16) };
}
