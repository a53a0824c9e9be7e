import { constants, zstdDecompressSync } from "node:zlib";
import { fromBinary } from "@bufbuild/protobuf";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { type BatchOp, Encoding, type OpItem, OpItemSchema, OpItemsSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import { BackendError } from "../types/backend-error.ts";

/** Maximum size of a packed message after decompression, in bytes; `BatchOp.Size` in the proto file sets it. */
const maxSize = 64 * 1024 * 1024;

/** Base-2 logarithm of the largest Zstandard window that a message may ask for, in bytes; the window is memory too. */
const maxWindowLog = 26;

/**
 * Yields the operations of a stream in order, with packed messages replaced by the operations in them. A packed message
 * (`OpItem.Batch`) is a compressed list of operations that the watcher encodes once for many nodes.
 *
 * *Bound:* one decompressed message, at most `maxMessageBytes` (default and maximum 64 MiB). Its operations are decoded
 * one by one.
 *
 * Errors: BAD_STREAM for a packed message of another size than it declares, in an unknown encoding, or with Sync or
 * another packed message in it.
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
      // A newer watcher may send fields that this version does not know.
      if (field !== OpItemsSchema.field.Items.number || type !== WireType.LengthDelimited) reader.skip(type, field);
      else yield packedOp(reader.bytes());
    }
  } catch (cause) {
    throw cause instanceof BackendError ? cause : badMessage("that cannot be decoded", cause);
  }
}

function packedOp(bytes: Uint8Array): OpItem {
  const item = fromBinary(OpItemSchema, bytes, { readUnknownFields: false });
  if (item.Op.case === "Sync" || item.Op.case === "Batch") throw badMessage(`that contains ${item.Op.case}`);
  return item;
}

function unpack({ Encoding: encoding, Items: items, Size: size }: BatchOp, maxBytes: number): Uint8Array {
  if (size > maxBytes) throw badMessage(`of ${size} bytes, more than the limit of ${maxBytes} (raise --max-msg-size)`);
  const bytes = encoding === Encoding.Identity ? items : decompress(encoding, items, size);
  if (bytes.length !== size) throw badMessage(`of ${bytes.length} bytes that declares ${size}`);
  return bytes;
}

function decompress(encoding: Encoding, items: Uint8Array, size: number): Uint8Array {
  if (encoding !== Encoding.Zstd) throw badMessage(`in the unknown encoding ${encoding}`);
  try {
    return zstdDecompressSync(items, {
      // One byte more shows that the message is too long; and 0 would mean no limit.
      maxOutputLength: size + 1,
      params: { [constants.ZSTD_d_windowLogMax]: maxWindowLog },
    });
  } catch (cause) {
    throw badMessage(`that cannot be decompressed to ${size} bytes`, cause);
  }
}

function badMessage(problem: string, cause?: unknown): BackendError {
  return new BackendError("BAD_STREAM", `the watcher sent a packed message ${problem}`, { cause });
}
