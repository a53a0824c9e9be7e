import type { Destination, Passage } from "../relay/passage.ts";
import type { ConnectionEnd } from "../traffic/service-traffic.ts";
import type { FromWorker, Progress } from "./messages.ts";

/** A client that a worker accepted. */
interface AcceptedClient {
  readonly id: number;
  readonly listener: number;
  readonly address: string | undefined;
  readonly port: number;
}

/**
 * A passage in a worker: asks the process with the plan for each destination, and reports to it. `worker.ts` makes one
 * for each connection; `PlannedPassage` is the other kind.
 */
export class AskedPassage implements Passage {
  readonly #client: AcceptedClient;
  readonly #send: (message: FromWorker) => void;
  /** Waits for the answer; undefined before the first question. */
  #use: ((to: Destination | ConnectionEnd) => void) | undefined;
  #fromClient = 0;
  #toClient = 0;
  #hasLeft = false;
  /** The process with the plan resets connections to removed endpoints. */
  readonly removedMs = undefined;

  constructor(client: AcceptedClient, send: (message: FromWorker) => void) {
    this.#client = client;
    this.#send = send;
  }

  next(use: (to: Destination | ConnectionEnd) => void): void {
    if (this.#use === undefined) this.#send({ kind: "accepted", ...this.#client });
    else this.#send({ kind: "next", id: this.#client.id });
    this.#use = use;
  }

  /** Receives the answer to {@link next}. */
  answer(to: Destination | ConnectionEnd): void {
    this.#use?.(to);
  }

  carried(fromClient: number, toClient: number): void {
    this.#fromClient += fromClient;
    this.#toClient += toClient;
  }

  /** Reported with the next progress, because nearly always the whole connection ends at once. */
  leave(): void {
    this.#hasLeft = true;
  }

  /** Returns what happened since the last call; undefined for nothing. */
  takeProgress(): Progress | undefined {
    if (this.#fromClient + this.#toClient === 0 && !this.#hasLeft) return undefined;
    return this.#take();
  }

  end(end: ConnectionEnd): void {
    this.#send({ kind: "ended", end, last: this.#take() });
  }

  #take(): Progress {
    const progress = [this.#client.id, this.#fromClient, this.#toClient, this.#hasLeft] as const;
    [this.#fromClient, this.#toClient, this.#hasLeft] = [0, 0, false];
    return progress;
  }
}
