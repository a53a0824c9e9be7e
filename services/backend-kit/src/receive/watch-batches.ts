import { create } from "@bufbuild/protobuf";
import { type CallOptions, Code, ConnectError, createClient } from "@connectrpc/connect";
import { assertNever } from "@kpng/model/assert-never.ts";
import type { Admission } from "@kpng/model/forward/forward-gate.ts";
import type { Position } from "@kpng/model/forward/position.ts";
import { type OpItem, OpItemSchema, type Ref, Sets } from "@kpng/model/gen/localv1/api_pb.ts";
import type { ViewChange } from "@kpng/model/node-view.ts";
import { decodeLocalOp, type LocalOp, type SyncMark } from "@kpng/model/wire/decode-local.ts";
import { staleHeader } from "@kpng/process/connection/stale-header.ts";
import { wallClockMs } from "@kpng/process/wall-clock.ts";
import { BackendError } from "../types/backend-error.ts";
import type { Batch } from "../types/sync-update.ts";
import type { HeldItems } from "./held-items.ts";
import { checkItemSize, estimateOpBytes } from "./op-size.ts";
import { unpackOps } from "./unpack-ops.ts";
import { checkViewBytes } from "./view-limit.ts";
import type { WatchOptions } from "./watch-options.ts";
import { WatchRequests } from "./watch-requests.ts";

/**
 * Opens one stream to a watcher and yields its batches.
 *
 * The caller sets the pace: at most 32 requested batches are outstanding (one with a watcher that ignores
 * `WatchReq.Count`). The watcher merges further changes.
 *
 * Ends only with an error or when `signal` aborts. Errors: STREAM_LOST if the stream cannot be opened or breaks,
 * BAD_STREAM if an operation is invalid, VIEW_TOO_LARGE if a batch or the view exceeds `maxViewBytes`, VIEW_DIVERGED if
 * the digest of the received view is not the watcher's, STATE_BEHIND if the gate refuses a state; `held` is then
 * unchanged. The caller calls `applied` of each batch that it could apply.
 */
export async function* watchBatches(options: WatchOptions, signal: AbortSignal): AsyncGenerator<Batch, void, void> {
  // If the caller leaves its loop, the call must end as well, and with it the stream on the watcher's side.
  const stop = new AbortController();
  options.held?.discard();
  const requests = new WatchRequests(options);
  let isStale = false;
  const callOptions: CallOptions = {
    signal: AbortSignal.any([signal, stop.signal]),
    onHeader: (headers) => {
      isStale = headers.has(staleHeader);
    },
  };
  const received = createClient(Sets, options.transport).watch(requests.send(stop.signal), callOptions);
  const ops = unpackOps(received, options.maxMessageBytes);
  let isChecked = true;
  const nextBatch = async (isFirst: boolean): Promise<Batch> => {
    requests.next();
    // A later batch shows that the server of the watcher answers again.
    const admit = (mark: SyncMark): Admission => admitState(mark, options, isFirst && isStale);
    const { batch, mark, admission } = await readBatch(ops, isFirst, admit, options);
    requests.received(mark);
    const isDigestWrong = isChecked && isDiverged(mark, options.held);
    if (isDigestWrong && !batch.isReset) {
      const text = `the view received up to revision ${batch.revision} does not have the digest that the watcher sent`;
      throw new BackendError("VIEW_DIVERGED", text);
    }
    isChecked &&= !isDigestWrong;
    return { ...batch, applied: admission.applied, ...(isDigestWrong ? { isDigestWrong } : {}) };
  };
  try {
    // No variable holds the batch: a suspended generator keeps its variables, and the first batch is the whole view.
    for (let isFirst = true; ; isFirst = false) yield await nextBatch(isFirst);
  } catch (error) {
    if (signal.aborted) return;
    throw error;
  } finally {
    stop.abort();
  }
}

/** Reads operations up to the next sync marker. */
async function readBatch(
  ops: AsyncIterator<OpItem>,
  isFirst: boolean,
  admit: (mark: SyncMark) => Admission,
  { held, maxViewBytes = Number.POSITIVE_INFINITY }: WatchOptions,
): Promise<{ readonly batch: Batch; readonly mark: SyncMark; readonly admission: Admission }> {
  let isReset = false;
  let isResumed = false;
  let changes: ViewChange[] = [];
  let batchBytes = 0;
  for (let count = 0; ; count++) {
    const item = await nextOp(ops, isFirst && count === 0);
    const op = decode(item);
    const opBytes = estimateOpBytes(item, op);
    batchBytes += opBytes;
    checkViewBytes("batch", batchBytes, maxViewBytes);
    held?.stage(item, opBytes);
    switch (op.kind) {
      case "keep":
        if (!isFirst || held === undefined || isResumed) {
          throw new BackendError("BAD_STREAM", "the watcher sent Keep, which was not requested");
        }
        isResumed = true;
        break;
      case "reset":
        isReset = true;
        changes = [];
        batchBytes = 0;
        break;
      case "sync": {
        if (isFirst && !isReset && !isResumed) {
          throw new BackendError("BAD_STREAM", "the watcher started the stream with neither Reset nor Keep");
        }
        const admission = admit(op.mark);
        const isOlder = admission.verdict === "accept";
        // One by one: as many as the cluster has endpoints would be too many arguments for one call.
        for (const ref of held?.commit() ?? []) changes.push(...deletionOf(ref));
        checkViewBytes("view", held?.bytes ?? 0, maxViewBytes);
        return { batch: { isReset, isResumed, isOlder, changes, ...markFields(op.mark) }, mark: op.mark, admission };
      }
      case "change":
        changes.push(op.change);
        break;
      case "ignored":
        break;
      default:
        assertNever(op);
    }
  }
}

/**
 * Passes the state of a sync marker through the gate, before the batch takes effect. Errors: STATE_BEHIND if the gate
 * refuses it.
 */
function admitState({ position }: SyncMark, { gate, held }: WatchOptions, isStale: boolean): Admission {
  if (gate === undefined) return { verdict: "apply", applied: () => undefined };
  const isUnchanged = held?.isUnchanged ?? false;
  const admission = gate.admit({ position, isStale, isUnchanged });
  if (admission.verdict !== "refuse") return admission;
  const what = isStale ? "a state that may be out of date" : "an older state";
  throw new BackendError("STATE_BEHIND", `the watcher offers ${what}: ${format(position)} after ${format(gate.held)}`);
}

function format(position: Position | undefined): string {
  if (position === undefined) return "unknown";
  const { source, services, slices, nodes, current } = position;
  const versions = `services ${services}-${current.services}, slices ${slices}-${current.slices}`;
  return `${source} ${versions}, nodes ${nodes}-${current.nodes}`;
}

function isDiverged({ digest }: SyncMark, held: HeldItems | undefined): boolean {
  return digest !== undefined && held !== undefined && held.digest !== digest;
}

function markFields({ revision, instance, ...mark }: SyncMark): Pick<Batch, "revision" | "instance" | "arrival"> {
  const { storedAtMs, triggeredAtMs, traceparents, tracedNodes } = mark;
  const receivedAtMs = wallClockMs();
  return { revision, instance, arrival: { receivedAtMs, storedAtMs, triggeredAtMs, traceparents, tracedNodes } };
}

/** Returns the next operation of the stream. Errors: STREAM_LOST. */
async function nextOp(ops: AsyncIterator<OpItem>, isFirst: boolean): Promise<OpItem> {
  let result: IteratorResult<OpItem>;
  try {
    result = await ops.next();
  } catch (cause) {
    throw cause instanceof BackendError ? cause : describeLoss(cause, isFirst);
  }
  if (result.done === true) throw new BackendError("STREAM_LOST", "the watcher ended the stream");
  return result.value;
}

function describeLoss(cause: unknown, isFirst: boolean): BackendError {
  const error = ConnectError.from(cause);
  const hint = hintOf(error, isFirst);
  return new BackendError("STREAM_LOST", `the stream from the watcher broke${hint}: ${error.message}`, { cause });
}

/** Returns a hint at the cause of a lost stream; "" if there is none. */
function hintOf(error: ConnectError, isFirst: boolean): string {
  if (/larger than configured readMaxBytes/.test(error.message)) return " (raise --max-msg-size)";
  // If only one side uses TLS, or a certificate is refused, this side sees no more than a closed connection.
  if (isFirst && error.code === Code.Canceled) {
    return " (does only one side use TLS? Is a certificate refused there?)";
  }
  return "";
}

function deletionOf(ref: Ref): readonly ViewChange[] {
  const op = decode(create(OpItemSchema, { Op: { case: "Delete", value: ref } }));
  return op.kind === "change" ? [op.change] : [];
}

function decode(item: OpItem): LocalOp {
  checkItemSize(item);
  try {
    return decodeLocalOp(item);
  } catch (cause) {
    throw new BackendError("BAD_STREAM", "the watcher sent an invalid operation", { cause });
  }
}
