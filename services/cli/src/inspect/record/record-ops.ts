import { create } from "@bufbuild/protobuf";
import { createClient, type Transport } from "@connectrpc/connect";
import { GlobalWatchReqSchema, Sets } from "@kpng/model/gen/globalv1/api_pb.ts";
import type { OpItem } from "@kpng/model/gen/localv1/api_pb.ts";
import { Feature } from "@kpng/model/gen/localv1/api_pb.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { Wakeup } from "@kpng/process/wait.ts";
import packageJson from "../../../package.json" with { type: "json" };

/**
 * Passes the operations of the global stream to `onOp`, whole batches only, for `durationMs` or until `signal` aborts.
 * The first batch, which is the whole state, is always awaited; only the wait for further changes ends early.
 * Errors: those of the stream; REQUEST_FAILED if the watcher ends it.
 *
 * `writeRecording` calls it, and writes the operations to the recording. Separate from it, because this function knows
 * only the stream, not the recording file.
 */
export async function recordOps(
  transport: Transport,
  durationMs: number,
  signal: AbortSignal,
  onOp: (op: OpItem) => Promise<void>,
): Promise<void> {
  const elapsed = new AbortController();
  const timer = setTimeout(() => elapsed.abort(), durationMs);
  const stop = AbortSignal.any([signal, elapsed.signal]);
  const streamEnd = new AbortController();
  const requested = new Wakeup();
  let credit = 1;
  async function* requests() {
    while (!streamEnd.signal.aborted) {
      if (credit === 0) await requested.wait(streamEnd.signal);
      if (credit === 0) continue;
      credit -= 1;
      const Subscriber = { Name: "kpng record", Version: packageJson.version, Observes: true };
      yield create(GlobalWatchReqSchema, { Features: [Feature.Extended], Subscriber });
    }
  }
  const endStream = (): void => streamEnd.abort();
  try {
    let hasState = false;
    for await (const op of createClient(Sets, transport).watch(requests(), { signal: streamEnd.signal })) {
      await onOp(op);
      if (op.Op.case !== "Sync") continue;
      if (stop.aborted) return;
      if (!hasState) stop.addEventListener("abort", endStream, { once: true });
      hasState = true;
      credit += 1;
      requested.wake();
    }
    if (!stop.aborted) throw new ProcessError("REQUEST_FAILED", "the watcher ended the stream early");
  } catch (error) {
    if (!streamEnd.signal.aborted) throw error;
  } finally {
    clearTimeout(timer);
    streamEnd.abort();
  }
}
