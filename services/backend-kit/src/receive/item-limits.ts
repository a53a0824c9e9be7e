import { BinaryReader } from "@bufbuild/protobuf/wire";
import type { AddressSet } from "@kpng/model/address.ts";
import type { OpItem } from "@kpng/model/gen/localv1/api_pb.ts";
import type { ViewEndpoint } from "@kpng/model/node-view.ts";
import type { Service } from "@kpng/model/service.ts";
import type { LocalOp } from "@kpng/model/wire/local-message.ts";
import { BackendError } from "../types/backend-error.ts";

/**
 * Memory of decoded values until their batch is applied, in bytes; measured with Node.js 24, rounded up. Decoding
 * amplifies: a port of 2 bytes on the wire takes 110 bytes in memory, and an endpoint of 100 bytes takes 600.
 */
const bytesOf = {
  op: 220,
  service: 500,
  endpoint: 120,
  address: 50,
  port: 120,
  endpointPort: 90,
  filter: 100,
  label: 80,
};

/** Maximum size of an encoded item, in bytes. etcd stores no larger object than 1.5 MiB. */
const maxItemBytes = 1.5 * 1024 * 1024;

/** Maximum number of fields of an item. Each label, port and filter is a field. */
const maxItemFields = 100_000;

/** Items below this size are not scanned before they are decoded: each field takes at least 2 bytes. */
const smallItemBytes = 64 * 1024;

/** Length of path and encoding of an item whose texts are counted with the values of `bytesOf`. */
const shortItemBytes = 512;

/** How often a long text is in memory: in the path, in the key of the object, and in a field of it. */
const textCopies = 3;

/**
 * Memory of the texts of a large item, besides `bytesOf`. Names of a cluster's objects are short; a hostile watcher may
 * send others, which no sum over fields would contain.
 */
function longTextBytes(itemBytes: number): number {
  return textCopies * Math.max(0, itemBytes - shortItemBytes);
}

/**
 * Estimates the memory that an operation of a stream takes until its batch is applied, in bytes. `watchBatches` adds
 * the estimates up, so that a watcher cannot fill the memory of a node.
 *
 * *Cost:* proportional to the number of ports, addresses and labels.
 */
export function estimateOpBytes({ Op: op }: OpItem, decoded: LocalOp): number {
  switch (op.case) {
    case "Keep":
      return bytesOf.op + op.value.Buckets.length;
    case "Delete":
      return bytesOf.op + op.value.Path.length + longTextBytes(op.value.Path.length);
    case "Set": {
      const pathLength = op.value.Ref?.Path.length ?? 0;
      return bytesOf.op + pathLength + longTextBytes(pathLength + op.value.Bytes.length) + changeBytes(decoded);
    }
    default:
      return bytesOf.op;
  }
}

/**
 * Checks an operation before it is decoded.
 *
 * Errors: BAD_STREAM for an item that is larger than any object of a cluster, or has more fields.
 */
export function checkItemSize({ Op: op }: OpItem): void {
  if (op.case !== "Set") return;
  const { Ref: ref, Bytes: bytes } = op.value;
  if (bytes.length < smallItemBytes) return;
  const fieldCount = bytes.length > maxItemBytes ? 0 : countFields(bytes);
  if (bytes.length <= maxItemBytes && fieldCount <= maxItemFields) return;
  const limits = `the limits are ${maxItemBytes} bytes and ${maxItemFields} fields`;
  const text = `the watcher sent an item of ${bytes.length} bytes at "${ref?.Path.slice(0, 600)}": ${limits}`;
  throw new BackendError("BAD_STREAM", text);
}

/** Counts the fields of a message up to one more than the limit. An invalid message is left to its decoder. */
function countFields(bytes: Uint8Array): number {
  const reader = new BinaryReader(bytes);
  let count = 0;
  try {
    for (; reader.pos < reader.len && count <= maxItemFields; count++) {
      const [field, type] = reader.tag();
      reader.skip(type, field);
    }
  } catch {
    return 0;
  }
  return count;
}

function changeBytes(op: LocalOp): number {
  if (op.kind !== "change") return 0;
  switch (op.change.kind) {
    case "put-service":
      return serviceBytes(op.change.item.service);
    case "put-endpoint":
      return endpointBytes(op.change.endpoint);
    default:
      return 0;
  }
}

function serviceBytes(service: Service): number {
  const { clusterIPs, externalIPs, loadBalancerIPs, proxyModeLoadBalancerIPs, ipFilters, labels, annotations } =
    service;
  const ports = [...service.ports, ...(service.unknownPorts ?? [])];
  const sets = [clusterIPs, externalIPs, loadBalancerIPs, proxyModeLoadBalancerIPs];
  return (
    bytesOf.service +
    sets.reduce((sum, set) => sum + addressBytes(set), 0) +
    ports.reduce((sum, { name }) => sum + bytesOf.port + name.length, 0) +
    ipFilters.reduce((sum, { targetIPs, sourceRanges }) => {
      return sum + bytesOf.filter + addressBytes(targetIPs) + sourceRanges.length * bytesOf.address;
    }, 0) +
    textMapBytes(labels) +
    textMapBytes(annotations)
  );
}

function endpointBytes({ addresses, ports, hostname, podName }: ViewEndpoint): number {
  const portBytes = ports.reduce((sum, { name }) => sum + bytesOf.endpointPort + name.length, 0);
  return bytesOf.endpoint + addressBytes(addresses) + portBytes + hostname.length + podName.length;
}

function addressBytes(set: AddressSet | undefined): number {
  return set === undefined ? 0 : (set.v4.length + set.v6.length) * bytesOf.address;
}

function textMapBytes(map: Readonly<Record<string, string>>): number {
  return Object.entries(map).reduce((sum, [key, value]) => sum + bytesOf.label + key.length + value.length, 0);
}

/**
 * Default of `--max-view-size` for a memory limit, in bytes: a third. A view of 250 000 endpoints takes 170 MB. While
 * a whole view replaces another one, both are in memory, and the rest of the process needs memory too. Pure.
 */
export function defaultViewBytes(memoryBytes: number): number {
  return Math.floor(memoryBytes / 3);
}

/**
 * Default of `--max-msg-size` for a memory limit, in bytes: 64 MiB as in KPNG, at most a 128th of the memory, and at
 * least 2 MiB. A decoded message of empty numbers takes 32 times its size. Our watchers send at most 1.5 MiB. Pure.
 */
export function defaultMessageBytes(memoryBytes: number): number {
  return Math.min(64 * 1024 * 1024, Math.max(2 * 1024 * 1024, Math.floor(memoryBytes / 128)));
}

/**
 * Checks the estimated memory of a batch or of the view against the limit, for `watchBatches`.
 *
 * Errors: VIEW_TOO_LARGE.
 */
export function checkViewBytes(what: "batch" | "view", bytes: number, maxBytes: number): void {
  if (bytes <= maxBytes) return;
  const text = `the ${what} that the watcher sent takes more than ${maxBytes} bytes of memory (--max-view-size)`;
  throw new BackendError("VIEW_TOO_LARGE", text);
}
