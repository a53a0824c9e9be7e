import { constants, zstdDecompressSync } from "node:zlib";
import { fromBinary } from "@bufbuild/protobuf";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { type CallOptions, Code, ConnectError, createClient } from "@connectrpc/connect";
import type { Admission, Position } from "@kpng/model/forward.ts";
import {
  type BatchOp,
  Encoding,
  type OpItem,
  OpItemSchema,
  OpItemsSchema,
  Sets,
} from "@kpng/model/gen/localv1/api_pb.ts";
import { assertNever } from "@kpng/model/narrowing.ts";
import { decodeLocalOp, type LocalOp, type SyncMark } from "@kpng/model/wire/local-message.ts";
import { failureHint } from "@kpng/process/connection/failure-hint.ts";
import { Reconnect, staleHeader } from "@kpng/process/connection/reconnect.ts";
import { type Log, reasonOf, withoutOpensslTrace } from "@kpng/process/log.ts";
import { waitMs } from "@kpng/process/wait.ts";
import { wallClockMs } from "@kpng/process/wall-clock.ts";
import { checkViewBytes, estimateOpBytes } from "../state/item-limits.ts";
import { type NextView, ViewState } from "../state/view-state.ts";
import { BackendError } from "../types/backend-error.ts";
import type { ViewUpdate } from "../types/sync-update.ts";
import { type WatchOptions, WatchRequests } from "./watch-requests.ts";

export interface FollowOptions extends WatchOptions {
  readonly log: Log;
  /** Delay before the first attempt to reopen a lost stream, in milliseconds; grows as in `Reconnect`. Default 1000. */
  readonly errorDelayMs?: number | undefined;
  /** Called after each batch, and at the end of each stream with the reason. */
  readonly onConnection?: ((state: ConnectionState) => void) | undefined;
  readonly wait?: typeof waitMs | undefined;
  readonly random?: (() => number) | undefined;
}

export type ConnectionState =
  /** A batch was applied, and the view is now at this revision. */
  | { readonly kind: "synced"; readonly revision: bigint }
  /**
   * The digest that the watcher sent does not match the received view. The whole view is requested again; if this
   * stream had already brought the whole view, it is used as it is.
   */
  | { readonly kind: "diverged" }
  /** A state in doubt (see `ForwardGate`) was accepted, because no watcher offered a better one. */
  | { readonly kind: "older" }
  /**
   * The watcher asked the client to reconnect to another replica (moved), or it is busy (refused). Neither is a fault.
   */
  | { readonly kind: "moved" | "refused"; readonly reason: string }
  /** The watcher offered a state in doubt, most often an older one. It is not applied; another watcher is tried. */
  | { readonly kind: "behind"; readonly reason: string }
  | { readonly kind: "lost"; readonly reason: string };

/**
 * Yields the view of a node (its Services and endpoints) after each batch. It opens one stream after another.
 *
 * When a stream ends, the next one is opened after a random delay that doubles up to 30 s (up to 3 s while nothing
 * listens at the address), or after the time that the watcher asked for. The view is kept meanwhile. The new stream
 * starts with digests of this view, and the watcher answers with the differences. A Go watcher sends the whole view
 * instead; it is compared with the old view here, so the yielded changes are always the real differences.
 *
 * Ends when `signal` aborts; never throws.
 */
export async function* followView(options: FollowOptions, signal: AbortSignal): AsyncGenerator<ViewUpdate, void, void> {
  const { log, errorDelayMs = 1_000, onConnection, wait = waitMs, random } = options;
  const reconnect = new Reconnect({ minMs: errorDelayMs, maxMs: Math.max(30_000, errorDelayMs), random });
  const state = new ViewState(options.nodeName);
  while (!signal.aborted) {
    reconnect.opening();
    try {
      for await (const update of watchView(state, options, signal)) {
        reconnect.progressed();
        onConnection?.({ kind: "synced", revision: update.revision });
        yield update;
      }
    } catch (error) {
      // A faulty stream may have lost or invented items: request the whole view.
      const code = error instanceof BackendError ? error.code : undefined;
      if (code !== "STREAM_LOST" && code !== "STATE_BEHIND") state.doubt();
      if (code === "VIEW_DIVERGED") onConnection?.({ kind: "diverged" });
      const reason = reasonOf(error);
      const end = reconnect.ended(error);
      const kind = code === "STATE_BEHIND" ? "behind" : end.kind;
      // A delay that the watcher asked for is not shortened.
      const isDelayOurs = kind === "behind" || kind === "lost";
      const delayMs = isDelayOurs ? (options.gate?.retryDelayMs(end.delayMs, random) ?? end.delayMs) : end.delayMs;
      onConnection?.({ kind, reason });
      log[kind === "lost" ? "error" : "info"](`stream ${kind}`, { reason, delayMs });
      await wait(delayMs, signal);
    }
  }
}

type WatchViewOptions = WatchOptions & Partial<Pick<FollowOptions, "log" | "onConnection">>;

/**
 * Opens one stream to a watcher, applies its batches to `state`, and yields the view after each.
 *
 * The caller sets the pace: at most 32 requested batches are outstanding (only one if the watcher ignores
 * `WatchReq.Count`). The watcher merges further changes.
 *
 * Ends only with an error or when `signal` aborts. Errors: STREAM_LOST if the stream cannot be opened or breaks,
 * BAD_STREAM if an operation is invalid, VIEW_TOO_LARGE if a batch or the view exceeds `maxViewBytes`, VIEW_DIVERGED if
 * the digest of the received view differs from the watcher's, STATE_BEHIND if the gate refuses a state; `state` is then
 * unchanged.
 */
export async function* watchView(
  state: ViewState,
  options: WatchViewOptions,
  signal: AbortSignal,
): AsyncGenerator<ViewUpdate, void, void> {
  // If the caller leaves its loop, the gRPC call must end as well, and with it the stream on the watcher's side.
  const stop = new AbortController();
  state.discard();
  const requests = new WatchRequests(options, state.buckets);
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
  try {
    for (let isFirst = true; ; isFirst = false) {
      requests.next();
      const mark = await stageBatch(ops, isFirst, state, options);
      requests.received(mark);
      // The header is about the stream's first state; a later batch has changes that the watcher has received since.
      const trust = { isStale: isFirst && isStale, isChecked };
      const { update, isDigestWrong } = commitBatch(state, mark, options, trust);
      isChecked &&= !isDigestWrong;
      yield update;
    }
  } catch (error) {
    if (signal.aborted) return;
    throw error;
  } finally {
    stop.abort();
  }
}

/** Stages operations up to the next sync marker. */
async function stageBatch(
  ops: AsyncIterator<OpItem>,
  isFirst: boolean,
  state: ViewState,
  { maxViewBytes = Number.POSITIVE_INFINITY }: WatchOptions,
): Promise<SyncMark> {
  let isReset = false;
  let isResumed = false;
  let batchBytes = 0;
  for (let count = 0; ; count++) {
    const item = await nextOp(ops, isFirst && count === 0);
    const op = decode(item);
    batchBytes += estimateOpBytes(item);
    checkViewBytes("batch", batchBytes, maxViewBytes);
    switch (op.kind) {
      case "keep":
        if (!isFirst || state.buckets === undefined || isResumed || isReset) {
          throw new BackendError("BAD_STREAM", "the watcher sent Keep, which was not requested");
        }
        isResumed = true;
        break;
      case "reset":
        isReset = true;
        batchBytes = 0;
        break;
      case "sync":
        if (isFirst && !isReset && !isResumed) {
          throw new BackendError("BAD_STREAM", "the watcher started the stream with neither Reset nor Keep");
        }
        return op.mark;
      case "change":
      case "ignored":
        break;
      default:
        assertNever(op);
    }
    state.stage(item, op);
  }
}

/**
 * Applies the staged batch to the view. `isStale` says that the watcher's state may be out of date, `isChecked` that
 * its digest counts. Errors: see {@link watchView}; the view is then unchanged.
 */
function commitBatch(
  state: ViewState,
  mark: SyncMark,
  { gate, log, onConnection, maxViewBytes = Number.POSITIVE_INFINITY }: WatchViewOptions,
  { isStale, isChecked }: { readonly isStale: boolean; readonly isChecked: boolean },
) {
  const { revision, instance, digest, storedAtMs, triggeredAtMs, traceparents, tracedNodes } = mark;
  const next = state.next();
  const admission = admitState(mark, next, gate, isStale);
  checkViewBytes("view", next.held.bytes, maxViewBytes);
  const isDigestWrong = isChecked && digest !== undefined && next.held.digest !== digest;
  if (isDigestWrong) {
    // Nothing can have been lost before a whole view, so the watcher's digest must be wrong.
    if (!next.isReset) {
      const text = `the view received up to revision ${revision} does not have the digest that the watcher sent`;
      throw new BackendError("VIEW_DIVERGED", text);
    }
    onConnection?.({ kind: "diverged" });
    log?.error("watcher sent a whole view with a wrong digest: using the view, ignoring further digests", {
      revision: Number(revision),
    });
  }
  if (admission?.verdict === "accept") {
    onConnection?.({ kind: "older" });
    log?.error("older state accepted: no watcher offered a newer one", { revision: Number(revision) });
  }
  const arrival = { receivedAtMs: wallClockMs(), storedAtMs, triggeredAtMs, traceparents, tracedNodes };
  const update = state.commit(next, { revision, instance, arrival });
  // Record the state only now: an invalid state must not make a valid one count as older.
  admission?.applied();
  return { update, isDigestWrong };
}

/** Errors: STATE_BEHIND if the gate refuses the state. */
function admitState(
  { position }: SyncMark,
  { isUnchanged }: NextView,
  gate: WatchOptions["gate"],
  isStale: boolean,
): Admission | undefined {
  const admission = gate?.admit({ position, isStale, isUnchanged: () => isUnchanged });
  if (admission?.verdict !== "refuse") return admission;
  const versions = `${format(position)} after ${format(gate?.held)}`;
  throw new BackendError("STATE_BEHIND", `the watcher offers ${admission.doubt}: ${versions}`);
}

function format(position: Position | undefined): string {
  if (position === undefined) return "unknown";
  const { source, services, slices, nodes, current } = position;
  const versions = `services ${services}-${current.services}, slices ${slices}-${current.slices}`;
  return `${source} ${versions}, nodes ${nodes}-${current.nodes}`;
}

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
  const message = withoutOpensslTrace(error.message);
  // Once the stream has started, a closed connection means that the watcher has stopped, so the usual hint would be
  // misleading.
  const isMisleading = !isFirst && error.code === Code.Canceled;
  const hint = isMisleading ? undefined : failureHint(message);
  const advice = hint === undefined ? "" : ` (${hint})`;
  return new BackendError("STREAM_LOST", `the stream from the watcher broke: ${message}${advice}`, { cause });
}

function decode(item: OpItem): LocalOp {
  try {
    return decodeLocalOp(item);
  } catch (cause) {
    throw new BackendError("BAD_STREAM", "the watcher sent an invalid operation", { cause });
  }
}

/** Maximum size of a packed message after decompression, in bytes; see `BatchOp.Size` in the proto file. */
const maxSize = 64 * 1024 * 1024;

/** Base-2 logarithm of the largest Zstandard window that a message may request, which also takes memory. */
const maxWindowLog = 26;

/**
 * Replaces each packed message (`OpItem.Batch`), which the watcher encodes once for many nodes, by its operations.
 *
 * *Bound:* one decompressed message, at most `maxMessageBytes` (default and maximum 64 MiB). Its operations are decoded
 * one by one. Errors: BAD_STREAM for a packed message whose size is not the declared one, whose encoding is unknown, or
 * that contains Sync or another packed message.
 */
export async function* unpackOps(ops: AsyncIterable<OpItem>, maxMessageBytes = maxSize): AsyncGenerator<OpItem> {
  for await (const item of ops) {
    if (item.Op.case === "Batch") yield* opsIn(item.Op.value, Math.min(maxMessageBytes, maxSize));
    else yield item;
  }
}

function* opsIn(batch: BatchOp, maxBytes: number): Iterable<OpItem> {
  const reader = new BinaryReader(unpack(batch, maxBytes));
  try {
    while (reader.pos < reader.len) {
      const [field, type] = reader.tag();
      // A newer watcher may send fields that this version does not know.
      if (field !== OpItemsSchema.field.Items.number || type !== WireType.LengthDelimited) reader.skip(type, field);
      else yield packedOp(reader.bytes());
    }
  } catch (cause) {
    throw cause instanceof BackendError ? cause : badMessage("that cannot be decoded", cause);
  }
}

function packedOp(bytes: Uint8Array): OpItem {
  const item = fromBinary(OpItemSchema, bytes, { readUnknownFields: false });
  if (item.Op.case === "Sync" || item.Op.case === "Batch") throw badMessage(`that contains ${item.Op.case}`);
  return item;
}

function unpack({ Encoding: encoding, Items: items, Size: size }: BatchOp, maxBytes: number): Uint8Array {
  if (size > maxBytes) throw badMessage(`of ${size} bytes, more than the limit of ${maxBytes} (raise --max-msg-size)`);
  const bytes = encoding === Encoding.Identity ? items : decompress(encoding, items, size);
  if (bytes.length !== size) throw badMessage(`of ${bytes.length} bytes that declares ${size}`);
  return bytes;
}

function decompress(encoding: Encoding, items: Uint8Array, size: number): Uint8Array {
  if (encoding !== Encoding.Zstd) throw badMessage(`in the unknown encoding ${encoding}`);
  try {
    return zstdDecompressSync(items, {
      // Allow one byte more, which shows that the message is too long; besides, 0 would mean no limit.
      maxOutputLength: size + 1,
      params: { [constants.ZSTD_d_windowLogMax]: maxWindowLog },
    });
  } catch (cause) {
    throw badMessage(`that cannot be decompressed to ${size} bytes`, cause);
  }
}

function badMessage(problem: string, cause?: unknown): BackendError {
  return new BackendError("BAD_STREAM", `the watcher sent a packed message ${problem}`, { cause });
}
