import { retryLaterError } from "@kpng/process/connection/retry-pushback.ts";
import { Counter, Gauge, Histogram, type Registry } from "prom-client";
import { AdmissionRoom, type AdmissionTicket } from "./admission-room.ts";

/**
 * What a stream begins with: a node's whole view, what differs from a view that the node holds, or everything, for a
 * relay. They differ in cost by orders of magnitude, so each kind has room of its own, and none is refused because of another.
 */
export type Beginning = "whole" | "resumed" | "global";

export interface AdmissionOptions {
  readonly registry: Registry;
  /**
   * Longest time that a stream may have to wait for its first batch, as far as can be told from those before it, in
   * milliseconds; 0 for no limit. Default 10 000, which is below the 30 s after which a client goes elsewhere.
   */
  readonly maxWaitMs?: number | undefined;
}

/** Decides who may wait for a first batch, and tells the others when to come again. */
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
      help: "Streams that were admitted and wait for the end of their first batch",
      labelNames,
      registers,
      collect() {
        for (const [view, { size }] of Object.entries(rooms)) this.set({ view }, size);
      },
    });
    this.#begun = new Counter({
      name: "kpng_streams_begun_total",
      help: "Streams that were admitted, by what they begin with: the whole view, what differs from one that is held, or all",
      labelNames,
      registers,
    });
    this.#refused = new Counter({
      name: "kpng_admission_refused_total",
      help: "Streams that were told to come again later",
      labelNames,
      registers,
    });
    this.#pushback = new Histogram({
      name: "kpng_admission_pushback_seconds",
      help: "How much later those were told to come",
      labelNames,
      buckets: [0.5, 1, 2, 5, 10, 20, 40, 60],
      registers,
    });
    for (const view of ["whole", "resumed", "global"] satisfies Beginning[]) {
      this.#begun.inc({ view }, 0);
      this.#refused.inc({ view }, 0);
    }
  }

  /** Errors: UNAVAILABLE with the time to wait, when there is no room. */
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
