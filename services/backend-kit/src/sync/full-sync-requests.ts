/**
 * How a backend asks its own sync loop for a full sync: somebody flushed its rules, an interface came.
 *
 * Requests until the next sync are one; the first reason is the one that is told.
 */
export class FullSyncRequests {
  #reason = "";
  #listener: () => void = () => undefined;

  /** Asks for a full sync, which may begin at once. Never more often than the loop's shortest interval. */
  request(reason: string): void {
    if (this.#reason === "") this.#reason = reason;
    this.#listener();
  }

  /** The reason of the request that waits, "" for none. */
  get reason(): string {
    return this.#reason;
  }

  /** For the loop: forgets the request that waits. */
  clear(): void {
    this.#reason = "";
  }

  /** For the loop: calls `listener` at each request. */
  onRequest(listener: () => void): void {
    this.#listener = listener;
  }
}
