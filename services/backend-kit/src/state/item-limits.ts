import { type OpItem, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import { BackendError } from "../types/backend-error.ts";

/** Memory that an item takes besides its strings, in bytes: in the view, and in rules. Measured with kpng-nft. */
const bytesOf = { service: 900, other: 300 } as const;

/** Each string is in memory as it came, and decoded or in a rule. */
const textCopies = 2;

/**
 * Estimates the memory that a stream operation takes until its batch is in effect, in bytes. The sum over a batch is
 * limited, so that a faulty watcher cannot fill a node's memory. O(1).
 */
export function estimateOpBytes({ Op: op }: OpItem): number {
  switch (op.case) {
    case "Keep":
      return bytesOf.other + op.value.Buckets.length;
    case "Delete":
      return bytesOf.other + textCopies * op.value.Path.length;
    case "Set":
      return itemBytes(op.value.Ref?.Set, op.value.Ref?.Path ?? "", op.value.Bytes.length);
    default:
      return bytesOf.other;
  }
}

/** Estimates the memory of an item of the view, in bytes; `length` is that of its message. */
export function itemBytes(set: SetName | undefined, path: string, length: number): number {
  return (set === SetName.ServicesSet ? bytesOf.service : bytesOf.other) + textCopies * (path.length + length);
}

/**
 * Returns the default limit for the view and for each batch, in bytes: a third of the memory limit. A view of 250 000
 * endpoints counts as 150 MB. While a whole view replaces another one, both are in memory, and the rest of the process
 * needs memory as well.
 */
export function defaultViewBytes(memoryBytes: number): number {
  return Math.floor(memoryBytes / 3);
}

/**
 * Returns the default of `--max-msg-size` for a memory limit, in bytes: 64 MiB as in KPNG, but at most a 128th of the
 * memory and at least 2 MiB. A message that consists of empty numbers takes 32 times its size when decoded, so a 128th
 * takes a quarter of the memory. Our watchers send at most 1.5 MiB, because etcd stores no larger object.
 */
export function defaultMessageBytes(memoryBytes: number): number {
  return Math.min(64 * 1024 * 1024, Math.max(2 * 1024 * 1024, Math.floor(memoryBytes / 128)));
}

/** Errors: VIEW_TOO_LARGE. */
export function checkViewBytes(what: "batch" | "view", bytes: number, maxBytes: number): void {
  if (bytes <= maxBytes) return;
  const text = `the ${what} that the watcher sent takes more than ${maxBytes} bytes (default: a third of the memory limit)`;
  throw new BackendError("VIEW_TOO_LARGE", text);
}
