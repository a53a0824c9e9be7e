import { create, toBinary } from "@bufbuild/protobuf";
import { EmptyOpSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import { getOrMake } from "@kpng/model/get-or-make.ts";
import { MessageReader } from "@kpng/model/wire/message-reader.ts";
import { MessageWriter } from "@kpng/model/wire/message-writer.ts";
import { type Frame, frameHeaderBytes, frameOf } from "../../items/frames.ts";

const writer = new MessageWriter();

const digestBytes = 8;

/** The field EmptyOp.Digest. */
const zeroDigest = toBinary(EmptyOpSchema, create(EmptyOpSchema, { Digest: 0n }));

/**
 * The sync marker of a batch: the message that ends it. All subscribers that advance between the same two snapshots
 * share it; each can get a copy with the digest of its own view.
 *
 * `syncMarker` makes it from a batch, and `WatchStream` writes it. Separate from `syncMarker`, because this class knows
 * only the bytes of a marker.
 */
export class Marker {
  readonly frame: Frame;
  /** The frame with a digest field of zero at its end. */
  #template: Frame | undefined;
  /** The template with changes before it, by these changes. */
  #closing: Map<Frame, Frame> | undefined;

  constructor(frame: Frame) {
    this.frame = frame;
  }

  /** Returns the marker with a digest. *Cost:* a copy of the marker. */
  withDigest(digest: bigint): Frame {
    return withDigestAtEnd(this.#withZeroDigest(), digest);
  }

  /** Returns changes that many subscribers share, then the marker with the digest of one. *Cost:* a copy of both. */
  closing(changes: Frame, digest: bigint): Frame {
    this.#closing ??= new Map();
    return withDigestAtEnd(
      getOrMake(this.#closing, changes, () => Buffer.concat([changes, this.#withZeroDigest()])),
      digest,
    );
  }

  #withZeroDigest(): Frame {
    if (this.#template !== undefined) return this.#template;
    const reader = new MessageReader(this.frame, frameHeaderBytes);
    writer.begin();
    // Fields may be in any order; at the end of the message, the digest is easy to overwrite.
    writer.message(reader.next(), Buffer.concat([reader.bytes(), zeroDigest]));
    this.#template = frameOf(writer.finish());
    return this.#template;
  }
}

/** Returns a copy whose last bytes are the digest. */
function withDigestAtEnd(template: Frame, digest: bigint): Frame {
  const copy = Buffer.from(template);
  copy.writeBigUInt64LE(digest, copy.length - digestBytes);
  return copy;
}
