import type { Writable } from "node:stream";

/** Pieces are joined to about this size: a write for each of 10 000 lines costs more than the lines. */
const blockLength = 64 * 1024;

/** Writes all pieces in order; resolves when the stream has taken the last one, so a slow reader slows the writer. */
export async function writeAll(stream: Writable, pieces: Iterable<string>): Promise<void> {
  let block = "";
  for (const piece of pieces) {
    block += piece;
    if (block.length >= blockLength) {
      await write(stream, block);
      block = "";
    }
  }
  if (block !== "") await write(stream, block);
}

function write(stream: Writable, text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    stream.write(text, (error) => (error ? reject(error) : resolve()));
  });
}
