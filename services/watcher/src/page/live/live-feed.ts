import { type Clock, realClock } from "@kpng/process/clock.ts";
import { wallClockMs } from "@kpng/process/wall-clock.ts";
import type { InspectContext } from "../../inspect/inspect-context.ts";
import { scheduler } from "../../stream/session/scheduler.ts";
import type { LiveFrame } from "./live-rows.ts";
import { LiveState } from "./live-state.ts";

/** Limit for open pages of one watcher. */
export const maxPages = 16;

/** Time between two frames, in milliseconds. */
const tickMs = 1_000;

/**
 * Sends frames to all open status pages, one a second. A frame is computed and encoded once for all pages, as the least
 * urgent work of the scheduler; while no page is open, nothing runs.
 *
 * `statusPage` creates one, and adds the stream of each open page. Separate from `LiveState`, which computes the frames
 * and knows nothing about pages and time.
 *
 * *Bound:* {@link maxPages} pages. A page that does not read gets no more frames, so at most one whole frame (about
 * 200 bytes for each node) and one later frame wait for it. When it reads again, it gets a whole frame.
 */
export class LiveFeed {
  readonly #state: LiveState;
  readonly #clock: Clock;
  readonly #pages = new Map<PageStream, Progress>();
  #stop: AbortController | undefined;

  constructor(context: InspectContext, clock: Clock = realClock) {
    this.#state = new LiveState(context);
    this.#clock = clock;
  }

  /** True if there are as many pages as there may be. */
  get isFull(): boolean {
    return this.#pages.size >= maxPages;
  }

  /** Adds a page, until {@link remove}. It gets its first frame at once. */
  add(page: PageStream): void {
    this.#pages.set(page, { isWhole: false, isFull: false });
    page.onDrain(() => {
      const progress = this.#pages.get(page);
      if (progress !== undefined) progress.isFull = false;
    });
    if (this.#stop === undefined) {
      this.#stop = new AbortController();
      this.#run(this.#stop.signal).catch((error: unknown) => this.#fail(error));
    } else scheduler.run("query", () => this.#greet()).catch((error: unknown) => this.#fail(error));
  }

  remove(page: PageStream): void {
    this.#pages.delete(page);
    if (this.#pages.size > 0) return;
    this.#stop?.abort();
    this.#stop = undefined;
  }

  async #run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await scheduler.run("query", () => {
        if (!signal.aborted) this.#tick();
      });
      await this.#clock.wait(tickMs, signal);
    }
  }

  /** Ends all pages. The next one begins with a new frame. */
  #fail(error: unknown): void {
    for (const page of [...this.#pages.keys()]) {
      this.remove(page);
      page.fail(error);
    }
  }

  #tick(): void {
    const frame = this.#state.advance(wallClockMs());
    let event: Buffer | undefined;
    for (const [page, progress] of this.#pages) {
      if (progress.isFull) progress.isWhole = false;
      else if (progress.isWhole) {
        event ??= eventOf(frame);
        progress.isFull = !page.write(event);
      }
    }
    this.#greet();
  }

  /** Sends the state of the last tick to the pages that have not got it, or have missed a frame. */
  #greet(): void {
    let event: Buffer | undefined;
    for (const [page, progress] of this.#pages) {
      if (progress.isWhole || progress.isFull) continue;
      event ??= eventOf(this.#state.whole(wallClockMs()));
      progress.isWhole = true;
      progress.isFull = !page.write(event);
    }
  }
}

/** Output of one open page. */
export interface PageStream {
  /** Returns false if the client does not read fast enough; then {@link onDrain} is called once it has read. */
  write(event: Buffer): boolean;
  onDrain(drained: () => void): void;
  /** The page gets no more frames, because a frame could not be computed. */
  fail(error: unknown): void;
}

interface Progress {
  /** True if the page has got a whole frame and every frame since. */
  isWhole: boolean;
  /** True while the page does not read. */
  isFull: boolean;
}

/** Encodes a frame as an event of the format text/event-stream. JSON contains no line break. */
function eventOf(frame: LiveFrame): Buffer {
  return Buffer.from(`data: ${JSON.stringify(frame)}\n\n`);
}
