import type { Destination } from "../relay/passage.ts";
import type { SweepLimits } from "../relay/sweeper.ts";
import type { ConnectionEnd } from "../traffic/service-traffic.ts";

/** Settings of a worker, as JSON on its command line. Times in milliseconds. */
export interface WorkerSettings {
  readonly connectTimeoutMs: number;
  /** The process with the plan enforces `drainMs`. */
  readonly tcp: SweepLimits;
}

/**
 * Message from the process with the plan to a worker; numbers are ids of listeners and of the worker's connections.
 *
 * - listen: the listening socket comes with it, unless it has been closed in the meantime.
 * - close: accept no more connections of a listener; answered by `deaf`. Open ones go on.
 * - to: the answer to `accepted` and `next`: the endpoint, or why the client is to be reset.
 * - reset: end a connection.
 */
export type ToWorker =
  | { readonly kind: "listen"; readonly listener: number }
  | { readonly kind: "close"; readonly listener: number }
  | { readonly kind: "to"; readonly id: number; readonly to: Destination | ConnectionEnd }
  | { readonly kind: "reset"; readonly id: number; readonly end: ConnectionEnd };

/**
 * Message from a worker to the process with the plan. `worker.ts` sends these messages and `Workers` receives them; a
 * file of its own, because the two run in different processes. They arrive in the order in which they were sent.
 *
 * *Bound:* while the process with the plan reads nothing, at most 4 096 messages about new clients wait in the worker,
 * one `progress`, and two for each connection that was open before.
 *
 * - ready: sent once, when messages are received. A socket that came earlier would accept connections that no code
 *   serves.
 * - accepted: a client connected; where may it go? `address` is undefined if the client has reset the connection.
 * - next: the endpoint did not accept the connection; where may it go instead?
 * - progress: what connections did since the last report. Sent each second, also without any: it shows that the worker
 *   does not hang.
 * - ended: a connection has ended; what it did since the last report.
 * - deaf: no more connections of this listener will be accepted.
 * - failed: a connection could not be accepted, e.g. because of too many open files.
 */
export type FromWorker =
  | { readonly kind: "ready" }
  | {
      readonly kind: "accepted";
      readonly listener: number;
      readonly id: number;
      readonly address: string | undefined;
      readonly port: number;
    }
  | { readonly kind: "next"; readonly id: number }
  | { readonly kind: "progress"; readonly reports: readonly Progress[] }
  | { readonly kind: "ended"; readonly end: ConnectionEnd; readonly last: Progress }
  | { readonly kind: "deaf" | "failed"; readonly listener: number };

/** Bytes of a connection since the last report, and whether its endpoint's side has closed. */
export type Progress = readonly [id: number, fromClient: number, toClient: number, hasLeft: boolean];
