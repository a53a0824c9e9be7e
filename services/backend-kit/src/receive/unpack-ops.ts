import { constants, zstdDecompressSync } from "node:zlib";
import { fromBinary } from "@bufbuild/protobuf";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { type BatchOp, Encoding, type OpItem, OpItemSchema, OpItemsSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import { BackendError } from "../types/backend-error.ts";

/** Longest that packed operations may be when they are unpacked, in bytes; the proto file gives it. */
const maxSize = 64 * 1024 * 1024;

/** No frame may ask for a larger window than the longest message has: 2 to this power bytes. */
const maxWindowLog = 26;

/**
 * The operations of a stream with those that come packed (OpItem.Batch) each by itself, in order.
 *
 * *Bound:* the bytes of one packed operation, at most as long as it says and never more than `maxMessageBytes` (default
 * and at most 64 MiB); the operations in it are decoded one by one.
 *
 * Errors: BAD_STREAM for one that says something else than it holds, or that holds what must not be packed.
 */
export async function* unpackOps(ops: AsyncIterable<OpItem>, maxMessageBytes = maxSize): AsyncGenerator<OpItem> {
  for await (const item of ops) {
    if (item.Op.case === "Batch") yield* opsIn(item.Op.value, Math.min(maxMessageBytes, maxSize));
    else yield item;
  }
}

function* opsIn(batch: BatchOp, maxBytes: number): Iterable<OpItem> {
  const reader = new BinaryReader(unpack(batch, maxBytes));
  try {
    while (reader.pos < reader.len) {
      const [field, type] = reader.tag();
      // A field that we do not know is a newer watcher's.
      if (field !== OpItemsSchema.field.Items.number || type !== WireType.LengthDelimited) reader.skip(type, field);
      else yield packedOp(reader.bytes());
    }
  } catch (cause) {
    throw cause instanceof BackendError ? cause : bad("cannot be decoded", cause);
  }
}

function packedOp(bytes: Uint8Array): OpItem {
  const item = fromBinary(OpItemSchema, bytes);
  if (item.Op.case === "Sync" || item.Op.case === "Batch") throw bad(`hold ${item.Op.case}, which must not be packed`);
  return item;
}

function unpack({ Encoding: encoding, Items: items, Size: size }: BatchOp, maxBytes: number): Uint8Array {
  if (size > maxBytes) throw bad(`take ${size} bytes, and the limit is ${maxBytes} (raise --max-msg-size)`);
  const bytes = encoding === Encoding.Identity ? items : decompress(encoding, items, size);
  if (bytes.length !== size) throw bad(`take ${bytes.length} bytes, and ${size} were said`);
  return bytes;
}

function decompress(encoding: Encoding, items: Uint8Array, size: number): Uint8Array {
  if (encoding !== Encoding.Zstd) throw bad(`are encoded in way ${encoding}, which is not known here`);
  try {
    return zstdDecompressSync(items, {
      // One byte more, so that too long a message is found out, and 0 is no limit at all.
      maxOutputLength: size + 1,
      params: { [constants.ZSTD_d_windowLogMax]: maxWindowLog },
    });
  } catch (cause) {
    throw bad(`cannot be unpacked to ${size} bytes`, cause);
  }
}

function bad(what: string, cause?: unknown): BackendError {
  return new BackendError("BAD_STREAM", `the watcher sent packed operations that ${what}`, { cause });
}
