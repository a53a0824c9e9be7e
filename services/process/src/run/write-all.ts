import type { Writable } from "node:stream";

/**
 * Writes chunks in order, and waits for a slow reader. Resolves when the last one is written; rejects with the reason
 * of `signal` when it aborts before that.
 */
export async function writeAll(stream: Writable, chunks: Iterable<string>, signal: AbortSignal): Promise<void> {
  let block = "";
  for (const chunk of chunks) {
    block += chunk;
    if (block.length >= blockLength) {
      await write(stream, block, signal);
      block = "";
    }
  }
  if (block !== "") await write(stream, block, signal);
}

/** Minimum size of a write, in characters. 10 000 small writes would cost more than formatting their lines. */
const blockLength = 64 * 1024;

function write(stream: Writable, text: string, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  return new Promise((resolve, reject) => {
    const stop = (): void => reject(signal.reason);
    signal.addEventListener("abort", stop, { once: true });
    stream.write(text, (error) => {
      signal.removeEventListener("abort", stop);
      if (error) reject(error);
      else resolve();
    });
  });
}
