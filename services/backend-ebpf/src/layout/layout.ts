import { addressAndPort, type Family } from "@kpng/model/address.ts";
import type { EndpointAddress, Frontend } from "@kpng/service-plan/service-plan.ts";
import ipaddr from "ipaddr.js";
import { type MapLayout, mapFlags, mapTypes } from "../bpf/bpf-map.ts";

/** Number of elements for which the maps have room. */
export interface MapSizes {
  /** Frontends per family. */
  readonly maxFrontends: number;
  /**
   * Elements per family for endpoint sets. Each set, of one Service port and policy, takes one element for its count
   * and one for each endpoint, and as many again during a change.
   */
  readonly maxEndpoints: number;
}

/**
 * Names of the maps, used as symbols in lb.bpf.c. `FamilyTables` explains the first three.
 *
 * - node_addresses: addresses of the node at which node ports answer.
 * - peers: for each socket, the address to which its process connected, for getpeername(2).
 * - config: settings of the node, one element for each family.
 */
export type MapName = "frontends" | "slots" | "endpoints" | "node_addresses" | "peers" | "config";

/** Sizes of keys and values in bytes; lb.bpf.c asserts them. */
export const sizes = {
  frontendKey: 20,
  slot: 40,
  endpoint: 24,
  peer: 36,
  config: 16,
} as const;

/** Offset of the key in a slot, in bytes. Before it are two routes of 8 bytes, in the order of `senders`. */
export const slotKeyPlace = 16;

/** Increased whenever the meaning of keys or values changes. Programs with a different version use different maps. */
export const layoutVersion = 3;

type NamedLayout = MapLayout & { readonly name: MapName };

/** Returns the maps of an instance, which both families share. Each has one half of `slots` and `endpoints`. */
export function mapLayouts({ maxFrontends, maxEndpoints }: MapSizes): readonly NamedLayout[] {
  const make = (
    name: MapName,
    type: keyof typeof mapTypes,
    [keyBytes, valueBytes, maxEntries]: readonly [number, number, number],
    flags = 0,
  ): NamedLayout => ({ name, type: mapTypes[type], keyBytes, valueBytes, maxEntries, flags });
  const { noPreallocation, mappable } = mapFlags;
  return [
    make("frontends", "hash", [sizes.frontendKey, 4, 2 * maxFrontends], noPreallocation),
    make("slots", "array", [4, sizes.slot, 2 * maxFrontends], mappable),
    make("endpoints", "array", [4, sizes.endpoint, 2 * maxEndpoints], mappable),
    // If a node has more addresses, syncs of sockets fail (BPF_FAILED).
    make("node_addresses", "hash", [16, 4, 4_096], noPreallocation),
    make("peers", "socketStorage", [4, sizes.peer, 0], noPreallocation),
    make("config", "array", [4, sizes.config, 2]),
  ];
}

/** First 12 bytes of every IPv4 address, which is written as ::ffff:a.b.c.d, so that all addresses have 16 bytes. */
const mappedPrefix = Buffer.from([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);

/** Writes the 16 bytes of an address. `address` must be in canonical form. */
function writeAddress(bytes: Buffer, address: string, at = 0): void {
  if (address.includes(":")) {
    bytes.set(ipaddr.IPv6.parse(address).toByteArray(), at);
    return;
  }
  // Avoid regular expressions and calls for single bytes, which would take most of the time of loading 100 000
  // endpoints.
  for (let index = 0; index < 10; index++) bytes[at + index] = 0;
  bytes[at + 10] = bytes[at + 11] = 0xff;
  let index = at + 12;
  let value = 0;
  for (let position = 0; position < address.length; position++) {
    const code = address.charCodeAt(position);
    if (code === 46) {
      bytes[index++] = value;
      value = 0;
    } else value = value * 10 + code - 48;
  }
  bytes[index] = value;
}

/** Returns the 16 bytes of an address. */
export function addressBytes(address: string): Buffer {
  const bytes = Buffer.alloc(16);
  writeAddress(bytes, address);
  return bytes;
}

/** Returns the address in the 16 bytes at `at`, in canonical form. */
export function readAddress(bytes: Buffer, at = 0): string {
  return familyOf(bytes, at) === "v4"
    ? bytes.subarray(at + 12, at + 16).join(".")
    : new ipaddr.IPv6([...bytes.subarray(at, at + 16)]).toRFC5952String();
}

/** Returns the family of the address at `at`. */
export function familyOf(bytes: Buffer, at = 0): Family {
  return bytes.compare(mappedPrefix, 0, mappedPrefix.length, at, at + mappedPrefix.length) === 0 ? "v4" : "v6";
}

const anyAddress: Readonly<Record<Family, string>> = { v4: "0.0.0.0", v6: "::" };

/**
 * Key of an element as a string, with one character for each byte. In this process, maps are keyed by strings, because
 * a hundred thousand buffers would take a lot of memory and burden the garbage collector.
 */
export type KeyText = string;

const frontendBytes = Buffer.alloc(sizes.frontendKey);

/** Returns the key of a TCP frontend: address and port. A node port has the family's unspecified address. */
export function frontendKey(family: Family, { address, port }: Pick<Frontend, "address" | "port">): KeyText {
  writeAddress(frontendBytes, address ?? anyAddress[family]);
  frontendBytes.writeUInt16BE(port, 16);
  return frontendBytes.toString("latin1");
}

/** Formats the key of a frontend. *Shape:* `TCP 10.96.0.1:80`, `TCP *:30053`, `TCP [fd00::1]:80`. */
export function describeKey(text: KeyText): string {
  const key = Buffer.from(text, "latin1");
  const address = readAddress(key);
  const place = Object.values(anyAddress).includes(address) ? "*" : address.includes(":") ? `[${address}]` : address;
  return `TCP ${place}:${key.readUInt16BE(16)}`;
}

/** Owner of a socket. */
export type SocketOwner = "pod" | "node";

/** Owners in the order of their routes in a slot. */
export const senders: readonly SocketOwner[] = ["pod", "node"];

/** Bits 0 to 31 of a route. `leave` means that the packets are left to the rules. Source: lb.bpf.c. */
export const routeKinds = { balance: 1, refuse: 2, leave: 3 } as const;

/**
 * A route of a frontend. Programs read it as one word of 8 bytes, which a single store replaces (see `FamilyTables`):
 * the lower 4 bytes are the kind, the upper 4 bytes the first element of the run.
 */
export interface SocketRoute {
  /** One of {@link routeKinds}, unless another program has changed the map. */
  readonly kind: number;
  /** Bytes of the run; undefined for none. */
  readonly run: Buffer | undefined;
}

/** Returns the routes of a slot of map `slots`, in the order of {@link senders}. */
export function readRoutes(slots: Buffer, slot: number, endpoints: Buffer): readonly SocketRoute[] {
  return senders.map((_, index) => {
    const at = slot * sizes.slot + index * 8;
    return { kind: slots.readUInt32LE(at), run: runBytes(endpoints, slots.readUInt32LE(at + 4)) };
  });
}

/** Describes the routes of a frontend. *Shape:* `pod leave; node balance 10.1.1.11:8080`, `pod,node refuse`. */
export function describeRoutes(routes: readonly SocketRoute[]): string {
  const [pod, node] = routes.map(describeRoute);
  return pod === node ? `pod,node ${pod}` : `pod ${pod}; node ${node}`;
}

function describeRoute({ kind, run }: SocketRoute): string {
  if (kind === routeKinds.refuse) return "refuse";
  if (kind === routeKinds.leave) return "leave";
  return kind === routeKinds.balance ? ["balance", ...describeRun(run)].join(" ") : "none";
}

/** Returns the bytes of a run: a header with the count, and the endpoints of a set, in elements of `endpoints`. */
export function encodeRun(endpoints: readonly EndpointAddress[]): Buffer {
  // `allocUnsafe` uses the buffer pool of Node.js. Allocating small buffers separately would cost more than everything
  // else in a first sync.
  const bytes = Buffer.allocUnsafe((endpoints.length + 1) * sizes.endpoint).fill(0);
  bytes.writeUInt32LE(endpoints.length);
  let at = 0;
  for (const { address, port } of endpoints) {
    at += sizes.endpoint;
    writeAddress(bytes, address, at);
    bytes.writeUInt16BE(port, at + 16);
  }
  return bytes;
}

/** Returns the bytes of the run that begins at element `first` of the map; undefined if it is not one. */
export function runBytes(memory: Buffer, first: number): Buffer | undefined {
  const at = first * sizes.endpoint;
  if (at + sizes.endpoint > memory.length) return undefined;
  const end = at + (memory.readUInt32LE(at) + 1) * sizes.endpoint;
  return end > memory.length ? undefined : memory.subarray(at, end);
}

/** Returns the endpoints of a run, or none if there is no run. *Shape:* `["10.1.1.11:8080", "[fd00::7]:8080"]`. */
function describeRun(run: Buffer = Buffer.alloc(0)): readonly string[] {
  const described: string[] = [];
  for (let at = sizes.endpoint; at < run.length; at += sizes.endpoint) {
    described.push(addressAndPort(readAddress(run, at), run.readUInt16BE(at + 16)));
  }
  return described;
}
