import type { ConnectError } from "@connectrpc/connect";
import { node } from "@kpng/source/testing/build.ts";
import { Registry } from "prom-client";
import { beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { type Frame, resetFrame } from "../../items/frames.ts";
import { Store } from "../../store/store.ts";
import { noChanges, type Projection } from "../delta/projection.ts";
import { Subscribers } from "./subscribers.ts";
import { WatchStream } from "./watch-stream.ts";

let store: Store;
let subscribers: Subscribers;
beforeEach(() => {
  store = new Store();
  store.replace({ services: [], slices: [], nodes: [] });
  subscribers = new Subscribers(store, new Registry());
});

/** A stream whose requests are for `count` batches, and resume if they are for the projection `resumed`. */
interface OpenOptions {
  /** Returned by each write. Default true. */
  readonly hasRoom?: () => boolean;
  readonly count?: number;
  readonly isExtended?: boolean;
  readonly resumed?: Projection;
}

/** Opens a stream until the test ends, and records its writes, its ends, and how often it had room again. */
function open({ hasRoom = () => true, count = 1, isExtended = false, resumed }: OpenOptions = {}) {
  const opened = { written: [] as Frame[], ends: [] as (ConnectError | undefined)[], rooms: 0 };
  const stream = new WatchStream<Projection>({
    subscribers,
    subscriber: subscribers.make("local", "").open(),
    sink: {
      write: (frames: Frame) => {
        opened.written.push(frames);
        return hasRoom();
      },
      room: () => {
        opened.rooms += 1;
      },
      end: (error) => opened.ends.push(error),
    },
    read: (projection) => ({
      ...{ projection, isExtended, count, received: undefined },
      resume: projection === resumed ? () => [Buffer.alloc(100)] : undefined,
    }),
  });
  onTestFinished(() => stream.close());
  return Object.assign(opened, { stream });
}

/** Applies a change that every view shows. */
const change = (): void => store.apply([{ kind: "put-node", node: node(`n${store.snapshot.revision}`) }]);

/** Returns a projection that shows a revision as a frame of 10 bytes; it calls `make` for each view and difference. */
function revisions(make: () => void = () => undefined): Projection {
  const changes = () => {
    make();
    return [Buffer.alloc(10)];
  };
  return { whole: changes, between: changes };
}

/** A projection whose whole view has three large frames. */
function largeView(): Projection {
  const pieces = Array.from({ length: 3 }, () => Buffer.alloc(20_000));
  return { ...revisions(), whole: () => pieces };
}

/** Waits until the streams have used a turn of the event loop. */
async function turn(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
  await new Promise((resolve) => setImmediate(resolve));
}

describe("a stream", () => {
  test("answers each of several requests, and a request for several batches with as many", async () => {
    const view = revisions();
    for (const { requests, count } of [
      { requests: 1, count: 1 },
      { requests: 3, count: 1 },
      { requests: 1, count: 3 },
      { requests: 2, count: 2 },
    ]) {
      const { stream, written } = open({ count });
      for (let made = 0; made < requests; made += 1) stream.take(view);
      expect(stream.isFull).toBe(false);
      for (let made = 0; made < 6; made += 1) {
        await turn();
        change();
      }
      await turn();
      expect(written).toHaveLength(1 + requests * count);
      stream.take(view);
      await turn();
      expect(written).toHaveLength(2 + requests * count);
    }
  });

  test("is full at a fixed number of outstanding batches", async () => {
    const opened = open({ count: 1_000 });
    const { stream } = opened;
    const view = revisions();
    let requests = 0;
    for (; !stream.isFull; requests += 1) stream.take(view);
    expect(requests).toBeLessThan(20);
    const { rooms } = opened;
    for (let batches = 0; stream.isFull && batches < 10_000; batches += 1) {
      await turn();
      change();
    }
    expect(stream.isFull).toBe(false);
    expect(opened.rooms).toBe(rooms + 1);
  });

  test("begins another view at once with Reset, instead of the previous request", async () => {
    const { stream, written } = open({ count: 16 });
    stream.take(revisions());
    await turn();
    stream.take(revisions());
    await turn();
    expect(written).toHaveLength(4);
    expect(written[2]).toBe(resetFrame);
    change();
    await turn();
    expect(written).toHaveLength(5);
  });

  test("answers a request for another view even if its turn yields an empty batch", async () => {
    let isQuiet = false;
    const quiet: Projection = {
      ...revisions(),
      between: () => (isQuiet ? noChanges : revisions().between(store.snapshot, store.snapshot)),
    };
    const { stream, written } = open({ count: 16 });
    stream.take(quiet);
    await turn();
    isQuiet = true;
    // Other work uses up the time slice.
    const busy = open();
    const spend = (): void => {
      for (const untilMs = performance.now() + 20; performance.now() < untilMs; );
    };
    busy.stream.take(revisions(spend));
    change();
    await Promise.resolve();
    stream.take(revisions());
    await turn();
    await turn();
    // Reset and the view, twice.
    expect(written).toHaveLength(4);
    expect(stream.isFull).toBe(false);
  });

  test.each([true, false])(
    "begins with Reset before the store is synced, if a request resumes first: %j",
    async (first) => {
      store = new Store();
      subscribers = new Subscribers(store, new Registry());
      const resumed = revisions();
      const { stream, written } = open({ resumed });
      stream.take(first ? resumed : revisions());
      stream.take(first ? revisions() : resumed);
      store.replace({ services: [], slices: [], nodes: [] });
      // Never a resumed view after Reset, and never a view without either.
      await expect.poll(() => written).toHaveLength(first ? 2 : 3);
      expect(written.at(-2)).toBe(resetFrame);
      expect(written.at(-1)?.length).toBeLessThan(100);
    },
  );

  test("answers a request that sends digests again like one without them", async () => {
    const resumed = revisions();
    const { stream, written } = open({ resumed });
    stream.take(resumed);
    await turn();
    stream.take(resumed);
    await turn();
    expect(written).toHaveLength(1);
    change();
    await turn();
    expect(written).toHaveLength(2);
    expect(written).not.toContain(resetFrame);
  });

  test("takes one request for another view ahead, and reports when it can take more", async () => {
    const opened = open({ hasRoom: () => false });
    const { stream } = opened;
    stream.take(largeView());
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
  });

  test("computes nothing for a reader that stops; when it reads again, one batch has all changes", async () => {
    let made = 0;
    const view = revisions(() => {
      made += 1;
    });
    let hasRoom = true;
    const { stream, written } = open({ hasRoom: () => hasRoom });
    stream.take(view);
    await turn();
    hasRoom = false;
    stream.take(view);
    change();
    await turn();
    expect(made).toBe(2);
    stream.take(view);
    for (let count = 0; count < 5; count += 1) change();
    await turn();
    expect(made).toBe(2);
    expect(written).toHaveLength(3);
    hasRoom = true;
    stream.drained();
    await turn();
    expect(made).toBe(3);
    expect(written).toHaveLength(4);
  });

  test.each([
    { name: "with a digest", digest: 1n },
    { name: "without a digest", digest: undefined },
  ])("writes a large change that readers share without a copy: $name", async ({ digest }) => {
    const shared = Buffer.alloc(20_000);
    const view: Projection = {
      ...revisions(),
      between: () => [shared],
      ...(digest === undefined ? {} : { digest: () => digest }),
    };
    const { stream, written } = open({ count: 2, isExtended: digest !== undefined });
    stream.take(view);
    await turn();
    change();
    await turn();
    // Reset, the view with its marker, the change, its marker.
    expect(written).toHaveLength(4);
    expect(written[2]).toBe(shared);
  });

  test("waits for the reader between large frames", async () => {
    const { stream, written } = open({ hasRoom: () => false });
    stream.take(largeView());
    // The last one is written with the marker.
    for (const count of [1, 2, 3, 5]) {
      await turn();
      expect(written).toHaveLength(count);
      stream.drained();
    }
    expect(written.slice(1, 4).map(({ length }) => length)).toEqual([20_000, 20_000, 20_000]);
  });

  test("whose view fails ends with an error, and other streams continue", async () => {
    const broken: Projection = {
      ...revisions(),
      whole: () => {
        throw new Error("broken");
      },
    };
    const [one, other] = [open(), open()];
    one.stream.take(broken);
    other.stream.take(revisions());
    await turn();
    expect(one.ends[0]?.message).toContain("broken");
    expect(other.written).toHaveLength(2);
  });
});
