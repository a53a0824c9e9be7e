import { totalmem } from "node:os";
import { maxPushbackMs, retryLaterError } from "@kpng/process/connection/reconnect.ts";
import type { Log } from "@kpng/process/log.ts";
import { RepeatLimit } from "@kpng/process/log.ts";
import { Counter, Gauge, type Registry } from "prom-client";

/** A ticket expires when its reader has read nothing for this time, in milliseconds. */
const stalledMs = 10_000;

/** Minimum time until a retry, and the time that each waiting stream adds to it, in milliseconds. */
const [minPushbackMs, eachPushbackMs] = [1_000, 5];

/**
 * Limits the streams that wait for their first batch, and tells other clients when to retry. Streams are refused only
 * when there is no memory for them: a waiting client costs less than a client that connects again.
 *
 * *Bound:* `maxWaiting` streams of each kind. Logs one line a minute for each kind.
 */
export class StartLimits {
  readonly #maxWaiting: number;
  /** When each waiting stream was last written to; undefined before the first write. */
  readonly #waiting: Readonly<Record<Beginning, Map<StartTicket, number | undefined>>> = {
    whole: new Map(),
    resumed: new Map(),
    global: new Map(),
  };
  readonly #begun: Counter<"view">;
  readonly #refused: Counter<"view">;
  readonly #log: Log;
  readonly #repeats = new RepeatLimit({ burst: 1 });

  constructor({ registry, log, maxWaiting = defaultMaxWaiting() }: StartLimitsOptions) {
    this.#maxWaiting = maxWaiting;
    this.#log = log;
    const waiting = Object.entries(this.#waiting);
    const labelNames = ["view"] as const;
    const registers = [registry];
    new Gauge({
      name: "kpng_admission_beginning",
      help: "Admitted streams whose first batch is not complete",
      labelNames,
      registers,
      collect() {
        for (const [view, { size }] of waiting) this.set({ view }, size);
      },
    });
    this.#begun = new Counter({
      name: "kpng_streams_begun_total",
      help: "Streams that were admitted, by their first batch: a whole view, the difference to a held view, or the whole cluster",
      labelNames,
      registers,
    });
    this.#refused = new Counter({
      name: "kpng_admission_refused_total",
      help: "Streams that were refused and told to retry later",
      labelNames,
      registers,
    });
    for (const [view] of waiting) {
      this.#begun.inc({ view }, 0);
      this.#refused.inc({ view }, 0);
    }
  }

  /** Errors: UNAVAILABLE with the time until the retry, if too many streams wait. */
  enter(view: Beginning): StartTicket {
    const waiting = this.#waiting[view];
    const isFull = (): boolean => this.#maxWaiting > 0 && waiting.size >= this.#maxWaiting;
    const nowMs = performance.now();
    if (isFull()) {
      for (const [ticket, wroteMs] of waiting) {
        if (wroteMs !== undefined && nowMs - wroteMs > stalledMs) waiting.delete(ticket);
      }
    }
    if (isFull()) throw this.#refuse(view, waiting.size);
    const ticket: StartTicket = {
      wrote: () => {
        if (waiting.has(ticket)) waiting.set(ticket, performance.now());
      },
      close: () => waiting.delete(ticket),
    };
    waiting.set(ticket, undefined);
    this.#begun.inc({ view });
    return ticket;
  }

  /** Retries are spread over the time in which the waiting streams are served. */
  #refuse(view: Beginning, size: number): Error {
    const pushbackMs = Math.min(maxPushbackMs, Math.max(minPushbackMs, size * eachPushbackMs) * (0.5 + Math.random()));
    this.#refused.inc({ view });
    this.#repeats.add(view, (heldBack) =>
      this.#log.info(
        "stream refused: too many wait for their first batch (--max-waiting-streams); the client retries later",
        { view, waiting: size, pushbackMs, ...(heldBack === 0 ? {} : { repeated: heldBack }) },
      ),
    );
    return retryLaterError(`${size} streams wait for their first batch`, pushbackMs);
  }
}

/** The place of one stream in {@link StartLimits}, until its first batch is complete or the stream ends. */
export interface StartTicket {
  /** Call after each write of the first batch. */
  wrote(): void;
  /** Call when the first batch is complete, and when the stream ends. */
  close(): void;
}

/**
 * The first batch of a stream: the whole view of a node, the difference to a view that the node holds, or the whole
 * cluster, for a relay. Each kind has a limit of its own, so that none keeps another out.
 */
type Beginning = "whole" | "resumed" | "global";

interface StartLimitsOptions {
  readonly registry: Registry;
  readonly log: Log;
  /**
   * Maximum number of streams of each kind that wait for their first batch; 0 for no limit. Default: as many as fit
   * into an eighth of the memory.
   */
  readonly maxWaiting?: number | undefined;
}

/** Memory of a waiting stream with the largest request, in bytes. */
const bytesPerStream = 64 * 1024;

/** Returns the number of waiting streams that fit into an eighth of the memory of this process. */
function defaultMaxWaiting(): number {
  const memoryBytes = Math.min(process.constrainedMemory() || totalmem(), totalmem());
  return Math.max(16, Math.floor(memoryBytes / 8 / bytesPerStream));
}
