import { readFileSync } from "node:fs";
import { parseAddress, withoutDottedIPv6 } from "@kpng/model/address.ts";
import type { Protocol } from "@kpng/model/service.ts";
import { familyOfMark } from "../render/firewall-marks.ts";
import { addressServer, markServer, realKey, type ServerId } from "../render/kernel-objects.ts";
import type { RunTool } from "./run-tool.ts";

/** Attempts to read the connections while virtual servers change. */
const mostReads = 5;

/**
 * Returns the number of connections of each real server in the kernel, closing ones included. It reads a file of /proc,
 * because that is cheaper than a process. Where other network namespaces have virtual servers, too, the kernel leaves
 * out some lines of that file, the same ones each time: if one that is `wanted` is missing, it asks ipvsadm.
 *
 * Errors: READ_FAILED, TOOL_MISSING.
 */
export async function readConnectionCounts(
  runTool: RunTool,
  wanted: Iterable<string>,
  read?: () => string,
): Promise<ReadonlyMap<string, number>> {
  const counts = readFromProc(read);
  if ([...wanted].every((real) => counts.has(real))) return counts;
  return parseConnectionCounts(await runTool.read(["ipvsadm", "-L", "-n"]), 10);
}

/**
 * The kernel gives the file in pages. Between two of them the other family may add or delete virtual servers: then
 * lines are skipped, and real servers seem to belong to another virtual server. So two successive reads must list the
 * same real servers. Returns nothing if none of five do.
 */
function readFromProc(read: () => string = () => readFileSync("/proc/net/ip_vs", "utf8")): ReadonlyMap<string, number> {
  let before: string | undefined;
  for (let count = 0; count < mostReads; count++) {
    const counts = parseConnectionCounts(read(), 16);
    const keys = [...counts.keys()].join("\n");
    if (keys === before) return counts;
    before = keys;
  }
  return new Map();
}

/**
 * Parses /proc/net/ip_vs, whose places and marks are hexadecimal, or the output of `ipvsadm -L -n`. *Shape:* a line
 * `TCP 0A600001:0050 rr` or `TCP  10.96.0.1:80 rr` for a virtual server, followed by lines `  -> 0A010107:1F90 Masq 1 3
 * 2` for its real servers: weight, active and inactive connections. Pure.
 */
export function parseConnectionCounts(text: string, radix: 10 | 16): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  let server: ServerId | undefined;
  for (const line of text.split("\n")) {
    const [first = "", place = "", , , active, inactive] = line.trim().split(/\s+/);
    if (first === "->") {
      const real = parsePlace(place, radix);
      if (server === undefined || real === undefined) continue;
      counts.set(realKey(server, real.address, real.port), Number(active) + Number(inactive));
    } else server = parseServerLine(first, place, radix);
  }
  return counts;
}

function parseServerLine(protocol: string, place: string, radix: 10 | 16): ServerId | undefined {
  if (protocol === "FWM") {
    const mark = Number.parseInt(place, radix);
    return markServer(mark, familyOfMark(mark));
  }
  const at = parsePlace(place, radix);
  if (at === undefined || (protocol !== "TCP" && protocol !== "UDP" && protocol !== "SCTP")) return undefined;
  return addressServer(at.address, protocol satisfies Protocol, at.port);
}

/** *Shape:* `10.96.0.1:80`, `[fd00::1]:80`; `0A600001:0050`, `[fd00:…]:0050` if the radix is 16. */
function parsePlace(text: string, radix: 10 | 16): { readonly address: string; readonly port: number } | undefined {
  const [, v6, v4 = "", port = ""] = /^(?:\[(.*)\]|(.*)):([0-9A-F]+)$/.exec(text) ?? [];
  const dotted =
    radix === 16
      ? v4
          .match(/../g)
          ?.map((byte) => Number.parseInt(byte, 16))
          .join(".")
      : v4;
  const address = parseAddress(withoutDottedIPv6(v6 ?? dotted ?? ""))?.address;
  return address === undefined ? undefined : { address, port: Number.parseInt(port, radix) };
}
