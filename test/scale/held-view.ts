import { createHash } from "node:crypto";
import { zstdDecompressSync } from "node:zlib";
import { fromBinary } from "@bufbuild/protobuf";
import { type OpItem, OpItemSchema, OpItemsSchema } from "@kpng/model/gen/localv1/api_pb.ts";

/** Digest of a view: of its paths in ascending order and the bytes of their items. */
export interface ViewDigest {
  readonly items: number;
  readonly digest: string;
}

export function digestView(items: Iterable<readonly [string, Uint8Array]>): ViewDigest {
  const sorted = [...items].sort(([a], [b]) => (a < b ? -1 : 1));
  const hash = createHash("sha256");
  for (const [path, bytes] of sorted) hash.update(`${path}\0${bytes.length}\0`).update(bytes);
  return { items: sorted.length, digest: hash.digest("hex").slice(0, 16) };
}

/** View of a subscriber that applies every operation it receives. Used to verify the contents of streams. */
export class HeldView {
  readonly #items = new Map<string, Uint8Array>();
  #rest: Buffer = Buffer.alloc(0);
  /**
   * Whether packed operations arrived since the last marker. Many nodes share them, so they may delete unknown items.
   */
  #isPacked = false;

  read(chunk: Buffer, start: number, end: number): void {
    let bytes = Buffer.concat([this.#rest, chunk.subarray(start, end)]);
    while (bytes.length >= 5) {
      const length = 5 + bytes.readUInt32BE(1);
      if (bytes.length < length) break;
      this.#apply(fromBinary(OpItemSchema, bytes.subarray(5, length)));
      bytes = bytes.subarray(length);
    }
    this.#rest = bytes;
  }

  #apply({ Op: op }: OpItem): void {
    switch (op.case) {
      case "Reset":
        this.#items.clear();
        return;
      case "Set":
        this.#items.set(op.value.Ref?.Path ?? "", Uint8Array.from(op.value.Bytes));
        return;
      case "Delete":
        if (!this.#items.delete(op.value.Path) && !this.#isPacked) {
          throw new Error(`the Delete of ${op.value.Path} names an unknown item`);
        }
        return;
      case "Batch":
        this.#isPacked = true;
        for (const item of fromBinary(OpItemsSchema, zstdDecompressSync(op.value.Items)).Items) this.#apply(item);
        return;
      case "Sync":
        this.#isPacked = false;
        return;
      default:
        throw new Error("received an operation that was not requested");
    }
  }

  digest(): ViewDigest {
    return digestView(this.#items);
  }
}
