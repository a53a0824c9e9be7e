import type { ConnectError } from "@connectrpc/connect";
import { Registry } from "prom-client";
import { beforeEach } from "vitest";
import type { Frame } from "../items/frames.ts";
import { Store } from "../store/store.ts";
import type { Changes, Projection } from "../stream/delta/projection.ts";
import { Subscribers } from "../stream/session/subscribers.ts";
import { WatchStream } from "../stream/session/watch-stream.ts";
import { node } from "./build.ts";

/** A stream whose writes a test records. */
export interface RecordedStream {
  readonly stream: WatchStream<Projection>;
  /** Lengths of the writes. */
  readonly written: number[];
  readonly ends: (ConnectError | undefined)[];
  rooms: number;
}

/** A store with the streams of its subscribers, for tests without a server. */
export interface RecordedStreams {
  readonly store: Store;
  readonly subscribers: Subscribers;
  /** Opens a stream; the sink's `write` returns `hasRoom`. */
  open(hasRoom?: () => boolean, count?: number): RecordedStream;
  /** Applies a change that every view shows. */
  change(): void;
}

/** Registers a hook that makes a new store before each test. */
export function useStreams(): RecordedStreams {
  let store = new Store();
  let subscribers = new Subscribers(store, new Registry());
  beforeEach(() => {
    store = new Store();
    store.replace({ services: [], slices: [], nodes: [] });
    subscribers = new Subscribers(store, new Registry());
  });
  return {
    get store() {
      return store;
    },
    get subscribers() {
      return subscribers;
    },
    open: (hasRoom = () => true, count = 1) => {
      const opened = { written: [] as number[], ends: [] as (ConnectError | undefined)[], rooms: 0 };
      const stream = new WatchStream<Projection>({
        subscribers,
        subscriber: subscribers.add("local", ""),
        sink: {
          write: (frames: Frame) => {
            opened.written.push(frames.length);
            return hasRoom();
          },
          room: () => {
            opened.rooms += 1;
          },
          end: (error) => opened.ends.push(error),
        },
        read: (projection) => ({ projection, isExtended: false, count, received: undefined }),
      });
      return Object.assign(opened, { stream });
    },
    change: () => store.apply([{ kind: "put-node", node: node(`n${store.snapshot.revision}`) }]),
  };
}

/**
 * Returns a projection that shows a revision as a frame of `frameBytes`; it calls `make` for each view and each
 * difference.
 */
export function revisions(frameBytes = 10, make: () => void = () => undefined): Projection {
  const changes = (count: number): Changes => {
    make();
    return { isEmpty: count === 0, frames: () => Array.from({ length: count }, () => Buffer.alloc(frameBytes)) };
  };
  return { whole: () => changes(1), between: () => changes(1) };
}

/** Waits until the streams have used a turn of the event loop. */
export async function turn(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
  await new Promise((resolve) => setImmediate(resolve));
}

/** Keeps the thread busy. */
export function spend(ms: number): void {
  const untilMs = performance.now() + ms;
  while (performance.now() < untilMs);
}
