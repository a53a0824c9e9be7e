import { Code, ConnectError } from "@connectrpc/connect";
import { Registry } from "prom-client";
import { describe, expect, test } from "vitest";
import { type Frame, resetFrame } from "../../items/frames.ts";
import { Store } from "../../store/store.ts";
import { revisions, spend, turn, useStreams } from "../../testing/recorded-streams.ts";
import { noChanges, type Projection } from "../delta/projection.ts";
import { Subscribers } from "./subscribers.ts";
import { WatchStream } from "./watch-stream.ts";

const streams = useStreams();

describe("a stream", () => {
  test("answers one request with one batch, and merges changes until then", async () => {
    const view = revisions();
    const { stream, written } = streams.open();
    stream.take(view);
    await turn();
    // Reset, then the view with its marker.
    expect(written).toHaveLength(2);
    streams.change();
    streams.change();
    await turn();
    expect(written).toHaveLength(2);
    stream.take(view);
    await turn();
    expect(written).toHaveLength(3);
    stream.close();
  });

  test("answers each of several requests, and a request for several batches with as many", async () => {
    const view = revisions();
    for (const { requests, count } of [
      { requests: 3, count: 1 },
      { requests: 1, count: 3 },
      { requests: 2, count: 2 },
    ]) {
      const { stream, written } = streams.open(() => true, count);
      for (let made = 0; made < requests; made += 1) stream.take(view);
      expect(stream.isFull).toBe(false);
      for (let made = 0; made < 6; made += 1) {
        await turn();
        streams.change();
      }
      await turn();
      expect(written).toHaveLength(1 + requests * count);
      stream.take(view);
      await turn();
      expect(written).toHaveLength(2 + requests * count);
      stream.close();
    }
  });

  test("is full at a fixed number of outstanding batches", async () => {
    const opened = streams.open(() => true, 1_000);
    const { stream } = opened;
    const view = revisions();
    let requests = 0;
    for (; !stream.isFull; requests += 1) stream.take(view);
    expect(requests).toBeLessThan(20);
    const { rooms } = opened;
    for (let batches = 0; stream.isFull && batches < 10_000; batches += 1) {
      await turn();
      streams.change();
    }
    expect(stream.isFull).toBe(false);
    expect(opened.rooms).toBe(rooms + 1);
    stream.close();
  });

  test("begins another view at once with Reset, instead of the previous request", async () => {
    const { stream, written } = streams.open(() => true, 16);
    stream.take(revisions());
    await turn();
    stream.take(revisions());
    await turn();
    expect(written).toHaveLength(4);
    expect(written[2]).toBe(resetFrame.length);
    streams.change();
    await turn();
    expect(written).toHaveLength(5);
    stream.close();
  });

  test("answers a request for another view even if its turn yields an empty batch", async () => {
    let isQuiet = false;
    const quiet: Projection = {
      ...revisions(),
      between: () => (isQuiet ? noChanges : revisions().between(streams.store.snapshot, streams.store.snapshot)),
    };
    const { stream, written } = streams.open(() => true, 16);
    stream.take(quiet);
    await turn();
    isQuiet = true;
    // Other work uses up the time slice.
    const busy = streams.open();
    busy.stream.take(revisions(10, () => spend(20)));
    streams.change();
    await Promise.resolve();
    stream.take(revisions());
    await turn();
    await turn();
    // Reset and the view, twice.
    expect(written).toHaveLength(4);
    expect(stream.isFull).toBe(false);
    stream.close();
    busy.stream.close();
  });

  test.each([
    { name: "a request that resumes, first", first: true },
    { name: "a request that resumes, second", first: false },
  ])("begins with Reset, whatever is requested before the store is synced: $name", async ({ first }) => {
    const store = new Store();
    const written: number[] = [];
    const resumed = { isEmpty: false, frames: () => [Buffer.alloc(100)] };
    const subscribers = new Subscribers(store, new Registry());
    const stream = new WatchStream<boolean>({
      subscribers,
      subscriber: subscribers.add("local", ""),
      sink: { write: (frames) => written.push(frames.length) > 0, room: () => undefined, end: () => undefined },
      read: (holds) => ({
        projection: revisions(),
        isExtended: false,
        count: 1,
        received: undefined,
        resume: holds ? () => resumed : undefined,
      }),
    });
    stream.take(first);
    stream.take(!first);
    store.replace({ services: [], slices: [], nodes: [] });
    // Never a resumed view after Reset, and never a view without either.
    await expect.poll(() => written).toHaveLength(first ? 2 : 3);
    expect(written.at(-2)).toBe(resetFrame.length);
    expect(written.at(-1)).toBeLessThan(100);
    stream.close();
  });

  test("takes one request for another view ahead, and reports when it can take more", async () => {
    const pieces = Array.from({ length: 3 }, () => Buffer.alloc(20_000));
    const opened = streams.open(() => false);
    const { stream } = opened;
    stream.take({ ...revisions(), whole: () => ({ isEmpty: false, frames: () => pieces }) });
    await turn();
    stream.take(revisions());
    expect(stream.isFull).toBe(true);
    const { rooms } = opened;
    for (let count = 0; count < 5; count += 1) {
      stream.drained();
      await turn();
    }
    expect(stream.isFull).toBe(false);
    expect(opened.rooms).toBe(rooms + 1);
    stream.close();
  });

  test("computes nothing for a reader that stops; when it reads again, one batch has all changes", async () => {
    let made = 0;
    const view = revisions(10, () => {
      made += 1;
    });
    let hasRoom = true;
    const { stream, written } = streams.open(() => hasRoom);
    stream.take(view);
    await turn();
    hasRoom = false;
    stream.take(view);
    streams.change();
    await turn();
    expect(made).toBe(2);
    stream.take(view);
    for (let count = 0; count < 5; count += 1) streams.change();
    await turn();
    expect(made).toBe(2);
    expect(written).toHaveLength(3);
    hasRoom = true;
    stream.drained();
    await turn();
    expect(made).toBe(3);
    expect(written).toHaveLength(4);
    stream.close();
  });

  test.each([
    { name: "with a digest", digest: 1n },
    { name: "without a digest", digest: undefined },
  ])("writes a large change that readers share without a copy: $name", async ({ digest }) => {
    const shared = Buffer.alloc(20_000);
    const view: Projection = {
      ...revisions(),
      between: () => ({ isEmpty: false, only: shared, frames: () => [shared] }),
      ...(digest === undefined ? {} : { digest: () => digest }),
    };
    const written: Frame[] = [];
    const stream = new WatchStream<Projection>({
      subscribers: streams.subscribers,
      subscriber: streams.subscribers.add("local", ""),
      sink: { write: (frames) => written.push(frames) > 0, room: () => undefined, end: () => undefined },
      read: (projection) => ({ projection, isExtended: digest !== undefined, count: 2, received: undefined }),
    });
    stream.take(view);
    await turn();
    streams.change();
    await turn();
    // Reset, the view with its marker, the change, its marker.
    expect(written).toHaveLength(4);
    expect(written[2]).toBe(shared);
    stream.close();
  });

  test("waits for the reader between large frames", async () => {
    const pieces = Array.from({ length: 3 }, () => Buffer.alloc(20_000));
    const view: Projection = { ...revisions(), whole: () => ({ isEmpty: false, frames: () => pieces }) };
    const { stream, written } = streams.open(() => false);
    stream.take(view);
    // The last one is written with the marker.
    for (const count of [1, 2, 3, 5]) {
      await turn();
      expect(written).toHaveLength(count);
      stream.drained();
    }
    expect(written.slice(1, 4)).toEqual([20_000, 20_000, 20_000]);
    stream.close();
  });

  test("ends after the last answer once the client has no more requests", async () => {
    const { stream, ends, written } = streams.open();
    stream.take(revisions());
    stream.finish();
    await turn();
    expect(written).toHaveLength(2);
    expect(ends).toEqual([undefined]);
    expect(streams.subscribers.open.size).toBe(0);
  });

  test("that is asked to leave ends at once while it waits, and otherwise after the current batch", async () => {
    const reason = new ConnectError("go", Code.Unavailable);
    const waiting = streams.open();
    const view = revisions();
    waiting.stream.take(view);
    await turn();
    waiting.stream.take(view);
    waiting.stream.leave(reason);
    expect(waiting.ends).toEqual([reason]);

    const pieces = [Buffer.alloc(20_000), Buffer.alloc(20_000)];
    const writing = streams.open(() => false);
    writing.stream.take({ ...revisions(), whole: () => ({ isEmpty: false, frames: () => pieces }) });
    await turn();
    writing.stream.leave(reason);
    expect(writing.ends).toEqual([]);
    for (let count = 0; count < 4; count += 1) {
      writing.stream.drained();
      await turn();
    }
    expect(writing.ends).toEqual([reason]);
    // The marker was written.
    expect(writing.written).toHaveLength(4);
    expect(streams.store.waitingCount).toBe(0);
  });

  test("whose view fails ends with an error, and other streams continue", async () => {
    const broken: Projection = {
      ...revisions(),
      whole: () => {
        throw new Error("broken");
      },
    };
    const [one, other] = [streams.open(), streams.open()];
    one.stream.take(broken);
    other.stream.take(revisions());
    await turn();
    expect(one.ends[0]?.message).toContain("broken");
    expect(other.written).toHaveLength(2);
    other.stream.close();
  });

  test("releases everything when the client disconnects while it waits", async () => {
    const view = revisions();
    const { stream, written } = streams.open();
    stream.take(view);
    await turn();
    stream.take(view);
    expect(streams.store.waitingCount).toBe(1);
    stream.close();
    expect(streams.store.waitingCount).toBe(0);
    streams.change();
    await turn();
    expect(written).toHaveLength(2);
  });
});
