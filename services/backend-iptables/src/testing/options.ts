import { chainNames } from "../render/chain-names.ts";
import type { RenderOptions } from "../render/render-options.ts";

/** Options of a node that knows its pods by their addresses, with only what a test is about. */
export function renderOptions(parts: Partial<RenderOptions> = {}): RenderOptions {
  return {
    family: "v4",
    names: chainNames("KPNG-"),
    masqueradeMark: 0x4000,
    isMasqueradeAll: false,
    localTraffic: { kind: "source", cidr: parts.family === "v6" ? "fd00:10::/64" : "10.0.0.0/8" },
    nodePortAddresses: "all",
    isLocalhostNodePorts: true,
    localnetGuard: parts.family === "v6" ? "none" : "others",
    isConntrackLiberal: false,
    nodeAddress: parts.family === "v6" ? "2001:db8::1" : "192.168.0.2",
    ...parts,
  };
}
