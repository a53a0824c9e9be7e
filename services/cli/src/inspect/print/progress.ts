import { formatMs } from "./format.ts";
import { oneLine } from "./terminal-text.ts";

/** A shorter wait shows nothing. */
const firstMs = 1_000;

/**
 * Shows what a command waits for, and for how long, in one line of standard error that each second replaces. Only on a
 * terminal: in a file or a pipe such lines would be noise. The result ends it and clears the line.
 *
 * `kpng SOURCE get|explain` calls it until the source has listed everything.
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
  }, firstMs).unref();
  return () => {
    clearInterval(timer);
    if (isShown) stderr.write("\r\u001b[K");
  };
}
