/**
 * Returns a function that starts `work`, which must not reject. While it runs, a call starts nothing, but it runs once
 * more afterwards: its result may be older than the reason for the call. The page lists the Services with it.
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
