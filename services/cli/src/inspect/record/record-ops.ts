import { create } from "@bufbuild/protobuf";
import { createClient, type Transport } from "@connectrpc/connect";
import { GlobalWatchReqSchema, Sets } from "@kpng/model/gen/globalv1/api_pb.ts";
import { Feature } from "@kpng/model/gen/localv1/api_pb.ts";
import { Wakeup } from "@kpng/process/wait.ts";
import type { RecordingLine } from "@kpng/watcher/source/replay/recording.ts";

/**
 * Gives the operations of the global stream to `take` until the time is over or `signal` aborts, whole batches only.
 */
export async function recordOps(
  transport: Transport,
  forMs: number,
  signal: AbortSignal,
  take: (op: Extract<RecordingLine, { kind: "op" }>["op"]) => Promise<void>,
): Promise<void> {
  const enough = new AbortController();
  const timer = setTimeout(() => enough.abort(), forMs);
  const stop = AbortSignal.any([signal, enough.signal]);
  const asked = new Wakeup();
  const over = new AbortController();
  let credit = 1;
  async function* requests() {
    while (!over.signal.aborted) {
      if (credit === 0) await asked.wait(over.signal);
      if (credit === 0) continue;
      credit -= 1;
      yield create(GlobalWatchReqSchema, { Features: [Feature.Extended] });
    }
  }
  const endWaiting = (): void => over.abort();
  try {
    let isWhole = false;
    for await (const op of createClient(Sets, transport).watch(requests(), { signal: over.signal })) {
      await take(op);
      if (op.Op.case !== "Sync") continue;
      if (stop.aborted) return;
      // Now only changes are waited for, and that may end at any time; the state is waited for in any case.
      if (!isWhole) stop.addEventListener("abort", endWaiting, { once: true });
      isWhole = true;
      credit += 1;
      asked.wake();
    }
  } catch (error) {
    if (!over.signal.aborted) throw error;
  } finally {
    clearTimeout(timer);
    over.abort();
  }
}
