import type { OpItem } from "@kpng/model/gen/localv1/api_pb.ts";

/**
 * Default limit of a relay for a batch, in bytes: a third of the memory limit, like that of a node's view. The state
 * that the relay serves stays in memory while the next one arrives. Pure.
 */
export function defaultBatchBytes(memoryBytes: number): number {
  return Math.floor(memoryBytes / 3);
}

/** Memory of an operation and of its path, besides its text. */
const opBytes = 512;

/** Encoded endpoints have 100 to 300 bytes. Larger items may have many ports and labels. */
const smallItemBytes = 1_024;

/** Memory of each byte beyond `smallItemBytes`: a port takes 2 bytes or more on the wire, and about 110 in memory. */
const largeItemFactor = 8;

/**
 * Estimates the memory that an operation of a global stream takes until its batch is applied, in bytes. 250 000
 * endpoints give about 190 MB; twice as much from an original KPNG, which sends each endpoint twice. Pure.
 *
 * `apiSource` adds up the operations of a batch, so that an upstream watcher that never ends one cannot fill the memory
 * of the relay. Separate from the stream, like the estimate of a node's view in the kit, which knows decoded items.
 */
export function estimateOpBytes({ Op: op }: OpItem): number {
  const pathBytes = (path = ""): number => opBytes + path.length;
  if (op.case === "Delete") return pathBytes(op.value.Path);
  if (op.case !== "Set") return opBytes;
  const { length } = op.value.Bytes;
  return pathBytes(op.value.Ref?.Path) + length + largeItemFactor * Math.max(0, length - smallItemBytes);
}

/**
 * Default limit of a relay for its whole state, in bytes: three eighths of the memory limit, what the guide "Sizing"
 * leaves for the cluster state. Pure.
 */
export function defaultStateBytes(memoryBytes: number): number {
  return Math.floor((memoryBytes * 3) / 8);
}

/** Memory of a Service, endpoint or node of the state, with its encodings for nodes, besides its text and ports. */
const itemBytes = 1_280;

/** How often the text of an item is in memory: in its path and keys, in its fields, and encoded. */
const textCopies = 4;

/** Memory of a port, which may take 2 bytes on the wire. */
const portBytes = 120;

/**
 * Estimates the memory that an item of the state takes in a relay, in bytes; an endpoint about 2.2 KiB. `length` is
 * that of the encoded item. Pure.
 *
 * `applyGlobalOp` calls it for each item, so that an upstream watcher cannot fill the memory of the relay with batches
 * that are small each. Separate from {@link estimateOpBytes}: an operation is held until its batch ends.
 */
export function estimateItemBytes(pathLength: number, length: number, portCount: number): number {
  return itemBytes + textCopies * (pathLength + length) + portBytes * portCount;
}
