/** What one part of the process says of itself. */
export interface PartHealth {
  /** False while the part keeps failing at its work. */
  readonly isHealthy: boolean;
  /** False until the part can serve. */
  readonly isReady: boolean;
  /** Why not, for people; "" if all is well. */
  readonly reason: string;
}

/**
 * The health of a process, part by part.
 *
 * - live: the event loop turns; the process must be restarted if it does not. No part can make it fail.
 * - healthy: every part succeeds at what it does.
 * - ready: every part has what it needs to serve.
 */
export class Health {
  readonly #parts = new Map<string, PartHealth>();
  readonly #listeners = new Set<() => void>();

  /** Sets what a part says. */
  set(part: string, health: PartHealth): void {
    this.#parts.set(part, health);
    for (const listener of this.#listeners) listener();
  }

  setReady(part: string): void {
    this.set(part, { isHealthy: true, isReady: true, reason: "" });
  }

  /** The part cannot serve yet. */
  setWaiting(part: string, reason: string): void {
    this.set(part, { isHealthy: true, isReady: false, reason });
  }

  /** The part fails at its work; whether it is still ready stays as it was. */
  setFailing(part: string, reason: string): void {
    this.set(part, { isHealthy: false, isReady: this.#parts.get(part)?.isReady ?? false, reason });
  }

  get isHealthy(): boolean {
    return [...this.#parts.values()].every((part) => part.isHealthy);
  }

  /** False as long as no part has spoken: a process that has not begun can serve nothing. */
  get isReady(): boolean {
    return this.#parts.size > 0 && [...this.#parts.values()].every((part) => part.isReady);
  }

  /** All parts by name. */
  get parts(): ReadonlyMap<string, PartHealth> {
    return this.#parts;
  }

  /** Why the parts whose name begins with `prefix` are not ready: `part: reason` of each. */
  waitingReasons(prefix: string): readonly string[] {
    const waiting = [...this.#parts].filter(([part, { isReady }]) => !isReady && part.startsWith(prefix));
    return waiting.map(([part, { reason }]) => `${part}: ${reason}`);
  }

  /** Calls `listener` after each change until `signal` aborts. */
  onChange(listener: () => void, signal: AbortSignal): void {
    this.#listeners.add(listener);
    signal.addEventListener("abort", () => this.#listeners.delete(listener), { once: true });
  }
}
