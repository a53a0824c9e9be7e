import { formatMs } from "./format.ts";
import { oneLine } from "./terminal-text.ts";

/** Time between two updates, in milliseconds; a shorter wait shows nothing. */
const periodMs = 1_000;

/**
 * Shows what a command waits for, and for how long, in one line of standard error that is replaced each second. Only on
 * a terminal: in a file or a pipe such lines would be noise. Call the returned function to end it and clear the line.
 *
 * `makeInspectSource` calls it until the source has listed everything, `progressTransport` until a request is answered,
 * and `writeRecording` while it records. Separate, because the three have nothing else in common.
 */
export function showProgress(text: () => string): () => void {
  const { stderr } = process;
  if (!stderr.isTTY) return () => undefined;
  const startedAtMs = performance.now();
  let isShown = false;
  const timer = setInterval(() => {
    isShown = true;
    const line = `${oneLine(text())} (${formatMs(performance.now() - startedAtMs)})`;
    stderr.write(`\r${line.slice(0, Math.max(20, stderr.columns - 1))}\u001b[K`);
  }, periodMs).unref();
  return () => {
    clearInterval(timer);
    if (isShown) stderr.write("\r\u001b[K");
  };
}
