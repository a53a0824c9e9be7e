import type { Ack, WatchReq } from "@kpng/model/gen/localv1/api_pb.ts";

/**
 * The requests that ask for something; acknowledgements among them go to `take` as soon as they arrive, also while a
 * batch is awaited or written.
 *
 * *Bound:* one request is read ahead.
 *
 * Errors: what `take` throws, when the next request is asked for.
 */
export async function* takeAcks(
  requests: AsyncIterable<WatchReq>,
  take: (ack: Ack) => void,
): AsyncGenerator<WatchReq, void, void> {
  const iterator = requests[Symbol.asyncIterator]();
  const read = async (): Promise<IteratorResult<WatchReq>> => {
    for (;;) {
      const next = await iterator.next();
      if (next.done === true || next.value.Ack === undefined) return next;
      take(next.value.Ack);
    }
  };
  for (let ahead = read(); ; ) {
    const next = await ahead;
    if (next.done === true) return;
    ahead = read();
    // It may fail while nobody waits for it yet.
    ahead.catch(() => undefined);
    yield next.value;
  }
}
