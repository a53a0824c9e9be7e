import { fromBinary } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { type OpItem, OpItemSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import { Wakeup } from "@kpng/process/wait.ts";
import { type Frame, frameHeaderBytes, messageIn } from "../../items/frames.ts";
import type { OpenWatch, WatchClient, WatchContext } from "../session/requests.ts";
import type { WatchStream } from "../session/watch-stream.ts";

/**
 * Yields the operations of a Watch call, for all protocols but plain gRPC, which `makeFastWatch` serves.
 *
 * Errors: ConnectError; UNAVAILABLE when `signal` aborts.
 * It adapts `WatchStream`, which is driven by calls, to the async iterators of the Connect library.
 */
export async function* watchOps<Request>(
  open: OpenWatch<Request>,
  context: WatchContext,
  { requests, client, signal, leave }: WatchCall<Request>,
): AsyncGenerator<OpItem, void, void> {
  const written: Frame[] = [];
  const changed = new Wakeup();
  let end: { readonly error: ConnectError | undefined } | undefined;
  const stream = open(context, client, {
    write: (frames) => {
      written.push(frames);
      changed.wake();
      return false;
    },
    room: () => changed.wake(),
    end: (error) => {
      end = { error };
      changed.wake();
    },
  });
  const onLeave = (): void => stream.leave(ConnectError.from(leave.reason));
  leave.addEventListener("abort", onLeave, { once: true });
  if (leave.aborted) onLeave();
  const over = new AbortController();
  const until = AbortSignal.any([signal, over.signal]);
  takeAll(stream, requests, changed, until).catch((error: unknown) => stream.leave(ConnectError.from(error)));
  try {
    while (!signal.aborted) {
      const frames = written.shift();
      if (frames !== undefined) {
        yield* opsIn(frames);
        if (written.length === 0) stream.drained();
      } else if (end === undefined) {
        await changed.wait(signal);
      } else if (end.error === undefined) {
        return;
      } else {
        throw end.error;
      }
    }
    throw new ConnectError("the watcher stops, or the client has disconnected", Code.Unavailable);
  } finally {
    leave.removeEventListener("abort", onLeave);
    stream.close();
    over.abort();
  }
}

interface WatchCall<Request> {
  readonly requests: AsyncIterable<Request>;
  readonly client: WatchClient;
  readonly signal: AbortSignal;
  /** See leaveKey. */
  readonly leave: AbortSignal;
}

async function takeAll<Request>(
  stream: WatchStream<Request>,
  requests: AsyncIterable<Request>,
  changed: Wakeup,
  until: AbortSignal,
): Promise<void> {
  for await (const request of requests) {
    while (stream.isFull && !until.aborted) await changed.wait(until);
    if (until.aborted) return;
    stream.take(request);
  }
  stream.finish();
}

/** Yields the operations in a buffer of whole frames. */
export function* opsIn(frames: Frame): Iterable<OpItem> {
  const view = new DataView(frames.buffer, frames.byteOffset, frames.byteLength);
  for (let offset = 0; offset < frames.length; ) {
    const end = offset + frameHeaderBytes + view.getUint32(offset + 1);
    yield fromBinary(OpItemSchema, messageIn(frames.subarray(offset, end)));
    offset = end;
  }
}
