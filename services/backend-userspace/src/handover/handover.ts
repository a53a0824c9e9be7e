import cluster, { type Worker } from "node:cluster";
import { setTimeout as sleep } from "node:timers/promises";
import type { HeldPlaces, KeeperMessage, ServerMessage } from "./messages.ts";

const drainStepMs = 100;

/**
 * A serving process's side of a handover (`--handover`): what it knows of the process before and after it. Without a
 * keeper there is no other process, and nothing here has an effect.
 *
 * `backend.ts` opens one, and `UserspaceRuntime` asks it before a listener is opened and when the process ends.
 * Separate from `keepListeners`, the other side, which runs in a process of its own.
 */
export class Handover {
  readonly #keeper: Worker | undefined;
  #before = new Map<string, string>();
  #isHolding = false;
  #isSucceeded = false;
  #isServing = false;
  readonly #stop = new AbortController();
  /** Listeners of this process; the runtime sets it. */
  places: () => HeldPlaces = () => [];

  private constructor(keeper: Worker | undefined) {
    this.#keeper = keeper;
    for (const signal of keeper === undefined ? [] : ["SIGTERM", "SIGINT"]) {
      process.on(signal, () => {
        if (!this.#isSucceeded) this.#stop.abort();
      });
    }
  }

  /**
   * Opens the handover of this process. With a keeper, waits until it has told what the process before this one serves.
   */
  static async open(): Promise<Handover> {
    const { worker } = cluster;
    const handover = new Handover(worker);
    if (worker === undefined) return handover;
    const { promise, resolve } = Promise.withResolvers<void>();
    worker.on("message", (message: KeeperMessage) => {
      handover.#receive(message);
      if (message.kind === "places") resolve();
    });
    handover.#send({ kind: "begun" });
    await promise;
    return handover;
  }

  /** Whether another process serves now, and this one only waits for its connections. */
  get isSucceeded(): boolean {
    return this.#isSucceeded;
  }

  /** Whether this process took over from another one, whose interface and table are in use. */
  get hasPredecessor(): boolean {
    return this.#before.size > 0;
  }

  /** Whether this process must not open further listeners, because the next one has been told what it serves. */
  get isHolding(): boolean {
    return this.#isHolding;
  }

  /**
   * Whether the process before this one listens at a place for another frontend. Both would accept its connections, and
   * this one would send them to the wrong Service.
   */
  isOfOther(place: string, frontend: string): boolean {
    const before = this.#before.get(place);
    return before !== undefined && before !== frontend;
  }

  /** Tells the keeper that the first sync is done. */
  reportServing(): void {
    if (!this.#isServing) this.#send({ kind: "serving" });
    this.#isServing = true;
  }

  /** Waits until nothing is open, for at most `limitMs` (0 for no limit), or until the whole program stops. */
  async drained(isDrained: () => boolean, limitMs: number): Promise<void> {
    const deadlineMs = limitMs === 0 ? Infinity : performance.now() + limitMs;
    while (!isDrained() && performance.now() < deadlineMs && !this.#stop.signal.aborted) await sleep(drainStepMs);
  }

  #receive(message: KeeperMessage): void {
    switch (message.kind) {
      case "places":
        this.#before = new Map(message.places);
        break;
      case "hold":
        this.#isHolding = true;
        this.#send({ kind: "places", places: this.places() });
        break;
      case "continue":
        this.#isHolding = false;
        break;
      case "succeeded":
        this.#isSucceeded = true;
        this.#end();
        break;
      case "stop":
        if (this.#isSucceeded) this.#stop.abort();
        else if (!this.#stop.signal.aborted) this.#end();
        break;
    }
  }

  /** Ends this process as SIGTERM does, which `runProcess` receives. */
  #end(): void {
    process.emit("SIGTERM");
  }

  #send(message: ServerMessage): void {
    if (this.#keeper?.isConnected() === true) this.#keeper.send(message);
  }
}
