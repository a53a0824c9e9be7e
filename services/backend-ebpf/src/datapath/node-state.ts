import type { Family } from "@kpng/model/address.ts";
import { isIn } from "@kpng/model/cidr.ts";
import type { NodePlan } from "@kpng/service-plan/service-plan.ts";
import { addressBytes, familyOf } from "../layout/keys.ts";
import { sizes } from "../layout/map-layouts.ts";
import type { EbpfMaps } from "./maps.ts";

/** Bits of the flags in map `config`. Source: lb.bpf.c. */
const configFlags = { loopbackNodePorts: 1, socketsOfPods: 2 };

/** Returns the value of map `config` for one family. `netnsCookie` identifies the node's network namespace. Pure. */
export function encodeConfig(node: NodePlan, netnsCookie: bigint, isForPods: boolean): Buffer {
  const bytes = Buffer.alloc(sizes.config);
  bytes.writeBigUInt64LE(netnsCookie);
  const loopback = node.isLoopbackNodePorts ? configFlags.loopbackNodePorts : 0;
  bytes.writeUInt32LE(loopback | (isForPods ? configFlags.socketsOfPods : 0), 8);
  return bytes;
}

/** Returns the addresses at which node ports answer. Loopback ones are left to `config`. Pure. */
export function nodePortAddresses(node: NodePlan, localAddresses: readonly string[]): readonly string[] {
  const chosen = node.nodePortAddresses === "all" ? localAddresses : node.nodePortAddresses;
  return chosen.filter((address) => address !== "::1" && !isIn(address, "127.0.0.0/8"));
}

/** Writes the node's part of the maps for one family. Returns a line for each difference. Errors: BPF_FAILED. */
export function writeNodeState(
  maps: EbpfMaps,
  family: Family,
  config: Buffer,
  addresses: readonly string[],
): readonly string[] {
  const changes: string[] = [];
  const index = family === "v4" ? 0 : 1;
  if (maps.get("config").get(index)?.equals(config) !== true) {
    maps.get("config").set(index, config);
    changes.push("settings of the node differ");
  }
  const map = maps.get("node_addresses");
  const wanted = new Map(addresses.map((address) => [addressBytes(address).toString("latin1"), address]));
  for (const [key] of map.entries()) {
    if (familyOf(key) !== family || wanted.delete(key.toString("latin1"))) continue;
    map.delete(key);
    changes.push("an address is not the node's");
  }
  for (const [key, address] of wanted) {
    map.set(key, 1);
    changes.push(`address ${address} was missing`);
  }
  return changes;
}
