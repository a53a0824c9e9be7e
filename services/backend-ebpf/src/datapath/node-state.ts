import type { Family } from "@kpng/model/address.ts";
import { isIn } from "@kpng/model/cidr.ts";
import type { NodePlan } from "@kpng/service-plan/service-plan.ts";
import { addressBytes, familyOf } from "../layout/keys.ts";
import { sizes } from "../layout/map-layouts.ts";
import type { EbpfMaps } from "./maps.ts";

/** Bits of the flags in map `config`. Source: lb.bpf.c. */
const configFlags = { hasPodCidr: 1, loopbackNodePorts: 2, othersArePods: 4 };

/** Facts of the node that programs need and that do not come from the plan. */
export interface NodeConfig {
  readonly netnsCookie: bigint;
  readonly refuseBit: number;
  readonly tcpStateOffset: number;
}

/**
 * Returns the value of map `config` for one family. `Datapath.useNode` passes it to {@link writeNodeState}. Pure.
 *
 * This file has everything that programs read and that does not depend on Services; `FamilyTables` has the rest.
 */
export function encodeConfig(node: NodePlan, config: NodeConfig): Buffer {
  const bytes = Buffer.alloc(sizes.config);
  const { podTraffic, isLoopbackNodePorts } = node;
  bytes.writeBigUInt64LE(config.netnsCookie);
  if (podTraffic?.kind === "source") {
    const [address = "", length = "0"] = podTraffic.cidr.split("/");
    addressBytes(address).copy(bytes, 8);
    const ones = Number(length) + (address.includes(":") ? 0 : 96);
    for (let bit = 0; bit < ones; bit++) bytes[24 + (bit >> 3)] = (bytes[24 + (bit >> 3)] ?? 0) | (0x80 >> (bit & 7));
  }
  const flags =
    (podTraffic?.kind === "source" ? configFlags.hasPodCidr : 0) |
    (isLoopbackNodePorts ? configFlags.loopbackNodePorts : 0) |
    (podTraffic === undefined ? 0 : configFlags.othersArePods);
  bytes.writeUInt32LE(flags, 40);
  bytes.writeUInt32LE(2 ** config.refuseBit, 44);
  bytes.writeUInt32LE(config.tcpStateOffset, 48);
  return bytes;
}

/** Returns the addresses at which node ports answer packets and sockets. Loopback ones are left to `config`. Pure. */
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
