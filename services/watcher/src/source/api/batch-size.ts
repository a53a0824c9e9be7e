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
