import type { ConnectionEnd } from "../traffic/service-traffic.ts";

/** Endpoint to connect to, and what to tell it first. */
export interface Destination {
  readonly address: string;
  readonly port: number;
  /** PROXY protocol header to send; undefined for none. */
  readonly header: HeaderSettings | undefined;
}

interface HeaderSettings {
  readonly version: "v1" | "v2";
  /** Where the client connected to; the socket's own address if undefined. */
  readonly address: string | undefined;
  readonly port: number;
}

/**
 * Decisions about one connection, and reports of what became of it. `Connection` asks for each destination and reports
 * bytes and its end.
 *
 * Separate from its two implementations: `PlannedPassage` decides in the process with the plan, and `AskedPassage` of
 * `workers/` asks that process.
 */
export interface Passage {
  /** Calls `use`, now or later, with where to connect next, or the reason why the client is to be reset. */
  next(use: (to: Destination | ConnectionEnd) => void): void;
  /** Adds bytes that were carried. */
  carried(fromClient: number, toClient: number): void;
  /** The connection to the endpoint has closed; the client's may still be open. */
  leave(): void;
  /** When the endpoint left the plan, in milliseconds; undefined if it did not, or another process watches that. */
  readonly removedMs: number | undefined;
  /** Ends the passage. Called once. */
  end(end: ConnectionEnd): void;
}
