import { fromBinary } from "@bufbuild/protobuf";
import { type OpItem, OpItemSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import { type Frame, frameHeaderBytes, messageIn } from "../items/frames.ts";

/** Yields the operations in a buffer that consists of whole frames. */
export function* opsIn(frames: Frame): Iterable<OpItem> {
  const view = new DataView(frames.buffer, frames.byteOffset, frames.byteLength);
  for (let offset = 0; offset < frames.length; ) {
    const end = offset + frameHeaderBytes + view.getUint32(offset + 1);
    yield fromBinary(OpItemSchema, messageIn(frames.subarray(offset, end)));
    offset = end;
  }
}
