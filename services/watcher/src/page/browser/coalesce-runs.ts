/**
 * Returns a function that runs `work`, which must not reject. However often it is called during a run, `work` runs once
 * more afterwards, because the result of the current run may be out of date.
 *
 * `main.ts` of the status page lists the Services with it. Separate, because it needs no document, so that a test
 * without a browser can run it.
 */
export function coalesceRuns(work: () => Promise<void>): () => void {
  let isRunning = false;
  let isWanted = false;
  const run = async (): Promise<void> => {
    isRunning = true;
    while (isWanted) {
      isWanted = false;
      await work();
    }
    isRunning = false;
  };
  return () => {
    isWanted = true;
    if (!isRunning) void run();
  };
}
