import { totalmem } from "node:os";
import { retryLaterError } from "@kpng/process/connection/retry-pushback.ts";
import type { Log } from "@kpng/process/log.ts";
import { RepeatLimit } from "@kpng/process/repeat-limit.ts";
import { Counter, Gauge, Histogram, type Registry } from "prom-client";
import { StartRoom, type StartTicket } from "./start-room.ts";

/**
 * Limits the streams that wait for their first batch, and tells other clients when to retry.
 *
 * `serve` creates it; `openLocalWatch` and `openGlobalWatch` call `enter` before the first batch. Separate from
 * `StartRoom`, which counts the streams of one kind; this class adds metrics, errors and one log line a minute for each
 * kind.
 */
export class StartLimits {
  readonly #rooms: Readonly<Record<Beginning, StartRoom>>;
  readonly #begun: Counter<"view">;
  readonly #refused: Counter<"view">;
  readonly #pushback: Histogram<"view">;
  readonly #log: Log;
  readonly #repeats = new RepeatLimit({ burst: 1 });

  constructor({ registry, log, maxWaiting = defaultMaxWaiting() }: StartLimitsOptions) {
    const room = (): StartRoom => new StartRoom({ maxWaiting });
    const rooms = { whole: room(), resumed: room(), global: room() };
    this.#rooms = rooms;
    this.#log = log;
    const labelNames = ["view"] as const;
    const registers = [registry];
    new Gauge({
      name: "kpng_admission_beginning",
      help: "Admitted streams whose first batch is not complete",
      labelNames,
      registers,
      collect() {
        for (const [view, { size }] of Object.entries(rooms)) this.set({ view }, size);
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
    this.#pushback = new Histogram({
      name: "kpng_admission_pushback_seconds",
      help: "Time until the retry that refused streams were told",
      labelNames,
      buckets: [0.5, 1, 2, 5, 10, 20, 40, 60],
      registers,
    });
    for (const view of ["whole", "resumed", "global"] satisfies Beginning[]) {
      this.#begun.inc({ view }, 0);
      this.#refused.inc({ view }, 0);
    }
  }

  /** Errors: UNAVAILABLE with the time until the retry, if too many streams wait. */
  enter(view: Beginning): StartTicket {
    const room = this.#rooms[view];
    const entry = room.enter();
    if (entry.kind === "waits") {
      this.#begun.inc({ view });
      return entry.ticket;
    }
    this.#refused.inc({ view });
    this.#pushback.observe({ view }, entry.pushbackMs / 1_000);
    const fields = { view, waiting: room.size, pushbackMs: entry.pushbackMs };
    this.#repeats.add(view, (heldBack) =>
      this.#log.info(
        "stream refused: too many wait for their first batch (--max-waiting-streams); the client retries later",
        heldBack === 0 ? fields : { ...fields, repeated: heldBack },
      ),
    );
    throw retryLaterError(`${room.size} streams wait for their first batch`, entry.pushbackMs);
  }
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
