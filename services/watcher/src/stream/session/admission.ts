import { retryLaterError } from "@kpng/process/connection/retry-pushback.ts";
import { Counter, Gauge, Histogram, type Registry } from "prom-client";
import { AdmissionRoom, type AdmissionTicket } from "./admission-room.ts";

/** Admits streams that may wait for their first batch, and tells other clients when to retry. */
export class Admission {
  readonly #rooms: Readonly<Record<Beginning, AdmissionRoom>>;
  readonly #begun: Counter<"view">;
  readonly #refused: Counter<"view">;
  readonly #pushback: Histogram<"view">;

  constructor({ registry, maxWaitMs = 10_000 }: AdmissionOptions) {
    const room = (): AdmissionRoom => new AdmissionRoom({ maxWaitMs });
    const rooms = { whole: room(), resumed: room(), global: room() };
    this.#rooms = rooms;
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
  enter(view: Beginning): AdmissionTicket {
    const room = this.#rooms[view];
    const entry = room.enter();
    if (entry.kind === "admitted") {
      this.#begun.inc({ view });
      return entry.ticket;
    }
    this.#refused.inc({ view });
    this.#pushback.observe({ view }, entry.pushbackMs / 1_000);
    throw retryLaterError(`${room.size} streams wait for their first batch`, entry.pushbackMs);
  }
}

/**
 * The first batch of a stream: the whole view of a node, the difference to a view that the node holds, or the whole
 * cluster, for a relay. Their costs differ by orders of magnitude, so each kind has a limit of its own.
 */
export type Beginning = "whole" | "resumed" | "global";

export interface AdmissionOptions {
  readonly registry: Registry;
  /**
   * Maximum expected wait of a stream for its first batch, in milliseconds; 0 for no limit. Default 10 000, below the
   * 30 s after which a client tries another replica.
   */
  readonly maxWaitMs?: number | undefined;
}
