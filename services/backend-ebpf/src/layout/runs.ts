import { addressAndPort } from "@kpng/model/address.ts";
import type { EndpointAddress } from "@kpng/service-plan/service-plan.ts";
import { readAddress, writeAddress } from "./keys.ts";
import { sizes } from "./map-layouts.ts";

/**
 * Returns the bytes of a run, which `wantedService` makes: a header with the count and the endpoints of a set, in
 * elements of map `endpoints`. A route leads to the first element.
 */
export function encodeRun(endpoints: readonly EndpointAddress[]): Buffer {
  // From the pool of Node.js: small buffers of their own would cost more than all else that a first sync does.
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

/** Returns the endpoints of a run; none without a run. *Shape:* `["10.1.1.11:8080", "[fd00::7]:8080"]`. */
export function describeRun(run: Buffer = Buffer.alloc(0)): readonly string[] {
  const described: string[] = [];
  for (let at = sizes.endpoint; at < run.length; at += sizes.endpoint) {
    described.push(addressAndPort(readAddress(run, at), run.readUInt16BE(at + 16)));
  }
  return described;
}
