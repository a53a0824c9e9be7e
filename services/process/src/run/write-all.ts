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
    const end = (settle: () => void): void => {
      signal.removeEventListener("abort", stop);
      settle();
    };
    stream.write(text, (error) => {
      // The stream's "error" event comes next. If its listener aborts the signal, as `runProcess` does when the reader of
      // standard output is gone, that is the reason.
      if (error) setImmediate(end, () => reject(error));
      else end(resolve);
    });
  });
}
