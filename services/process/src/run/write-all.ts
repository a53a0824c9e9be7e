import type { Writable } from "node:stream";

/** Writes chunks in order, and waits for a slow reader. Resolves when the last one is written. */
export async function writeAll(stream: Writable, chunks: Iterable<string>): Promise<void> {
  let block = "";
  for (const chunk of chunks) {
    block += chunk;
    if (block.length >= blockLength) {
      await write(stream, block);
      block = "";
    }
  }
  if (block !== "") await write(stream, block);
}

/** Minimum size of a write, in characters. 10 000 small writes would cost more than formatting their lines. */
const blockLength = 64 * 1024;

function write(stream: Writable, text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    stream.write(text, (error) => (error ? reject(error) : resolve()));
  });
}
