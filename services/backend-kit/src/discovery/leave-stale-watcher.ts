import { createClient, type Transport } from "@connectrpc/connect";
import { PositionService } from "@kpng/model/gen/kpng/position/v1/position_pb.ts";
import { waitMs } from "@kpng/process/wait.ts";

/**
 * Looks for a watcher whose state is current while a node has a stream from one whose state may be out of date.
 * Resolves with its key when there is one; with undefined when the current watcher is no longer stale, or when `signal`
 * aborts. `dialWatchers` calls it and moves the stream to the watcher found. Separate from it, because the search runs
 * beside the stream and does not change it.
 *
 * The first search begins after up to a quarter of `intervalMs`, because all nodes of a watcher search at once.
 */
export async function findFreshWatcher(
  { current, others, intervalMs = 20_000, random = Math.random }: SearchOptions,
  signal: AbortSignal,
): Promise<string | undefined> {
  await waitMs((intervalMs / 4) * random(), signal);
  while (!signal.aborted) {
    if (await isFresh(current, signal)) return undefined;
    for (const [key, transport] of others()) {
      if (await isFresh(transport, signal)) return key;
    }
    await waitMs(intervalMs * (0.75 + 0.5 * random()), signal);
  }
  return undefined;
}

/** Time that a watcher has to say whether it is stale, in milliseconds. */
const answerLimitMs = 3_000;

async function isFresh(transport: Transport, signal: AbortSignal): Promise<boolean> {
  try {
    const answer = await createClient(PositionService, transport).check({}, { signal, timeoutMs: answerLimitMs });
    return !answer.isStale;
  } catch {
    // Unreachable, not ready, or a watcher that does not know the call: no reason to leave a working stream.
    return false;
  }
}

/** Parameters of {@link findFreshWatcher}. */
export interface SearchOptions {
  /** The watcher of the stream. */
  readonly current: Transport;
  /** Returns the other watchers, by key. */
  readonly others: () => Iterable<readonly [string, Transport]>;
  /** Time between two searches, in milliseconds, varied by a quarter. Default 20 000. */
  readonly intervalMs?: number | undefined;
  /** Returns a number from 0 up to but not including 1. */
  readonly random?: (() => number) | undefined;
}
