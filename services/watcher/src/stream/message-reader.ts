import { Code, ConnectError } from "@connectrpc/connect";
import { frameHeaderBytes } from "./frames.ts";

/**
 * Takes the messages of a gRPC request out of its chunks.
 *
 * *Bound:* one message of at most `maxBytes` and the chunk that ends it.
 *
 * Errors: ConnectError RESOURCE_EXHAUSTED for a longer message, INVALID_ARGUMENT for a request that ends inside one,
 * UNIMPLEMENTED for a compressed one.
 */
export async function* readMessages(chunks: AsyncIterable<Uint8Array>, maxBytes: number): AsyncIterable<Uint8Array> {
  let rest: Uint8Array = new Uint8Array();
  for await (const chunk of chunks) {
    rest = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
    for (
      let length = lengthOf(rest, maxBytes);
      rest.length >= frameHeaderBytes + length;
      length = lengthOf(rest, maxBytes)
    ) {
      yield rest.subarray(frameHeaderBytes, frameHeaderBytes + length);
      rest = rest.subarray(frameHeaderBytes + length);
    }
  }
  if (rest.length > 0)
    throw new ConnectError(`the request ends ${rest.length} bytes into a message`, Code.InvalidArgument);
}

/** Length of the message that begins there; endless if not even its header is there. */
function lengthOf(bytes: Uint8Array, maxBytes: number): number {
  if (bytes.length < frameHeaderBytes) return Number.POSITIVE_INFINITY;
  if (bytes[0] !== 0) throw new ConnectError("compressed requests are not understood here", Code.Unimplemented);
  const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(1);
  if (length <= maxBytes) return length;
  throw new ConnectError(`message size ${length} is larger than ${maxBytes}`, Code.ResourceExhausted);
}
