import type { Http2Stream } from "node:http2";

/**
 * Calls `onChunk` with what arrives on a stream of HTTP/2, as "data" does, and as long as the stream flows and nothing waits
 * in it without the way through its queue: of what it costs to read a message of some bytes, that is a third. Pausing,
 * resuming and the end of the stream are as always.
 *
 * It rests on Node.js handing what it has read to the stream's own `push`, as it does to any Readable. Where it does not,
 * everything comes as "data".
 */
export function readChunks(stream: Http2Stream, onChunk: (chunk: Uint8Array) => void): void {
  const push = stream.push;
  stream.push = (chunk: Uint8Array | null, encoding?: BufferEncoding): boolean => {
    if (chunk === null || stream.readableFlowing !== true || stream.readableLength > 0) {
      return push.call(stream, chunk, encoding);
    }
    onChunk(chunk);
    return true;
  };
  stream.on("data", onChunk);
}
