import { parseAddress, withoutDottedIPv6 } from "@kpng/model/address.ts";
import { familyOfMark } from "../render/firewall-marks.ts";
import { addressServer, markServer, realKey, type ServerId } from "../render/kernel-objects.ts";
import type { RunTool } from "./run-tool.ts";

/**
 * Returns the number of connections to each real server in the kernel, including closing connections. The file
 * /proc/net/ip_vs cannot be used instead: it lacks lines if other network namespaces have virtual servers.
 *
 * Errors: READ_FAILED, TOOL_MISSING.
 */
export async function readConnectionCounts(runTool: RunTool): Promise<ReadonlyMap<string, number>> {
  return parseConnectionCounts(await runTool.read(["ipvsadm", "-L", "-n"]));
}

/**
 * Parses the output of `ipvsadm -L -n`. *Shape:* a line `TCP  10.96.0.1:80 rr` for a virtual server, followed by lines
 * `  -> 10.1.1.7:8080 Masq 1 3 2` for its real servers: weight, active and inactive connections. Pure.
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
  if (protocol === "FWM") return markServer(Number(place), familyOfMark(Number(place)));
  const at = parsePlace(place);
  if (at === undefined || (protocol !== "TCP" && protocol !== "UDP" && protocol !== "SCTP")) return undefined;
  return addressServer(at.address, protocol, at.port);
}

/** *Shape:* `10.96.0.1:80`, `[fd00::1]:80`. */
function parsePlace(text: string): { readonly address: string; readonly port: number } | undefined {
  const [, v6, v4 = "", port = ""] = /^(?:\[(.*)\]|(.*)):(\d+)$/.exec(text) ?? [];
  const address = parseAddress(withoutDottedIPv6(v6 ?? v4))?.address;
  return address === undefined ? undefined : { address, port: Number(port) };
}
