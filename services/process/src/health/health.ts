/** Health of one part of the process. */
export interface PartHealth {
  /** False while the part keeps failing. */
  readonly isHealthy: boolean;
  /** False until the part can serve. */
  readonly isReady: boolean;
  /** Why the part is not healthy or not ready, or a warning although it is both; "" if there is nothing to report. */
  readonly reason: string;
}

/**
 * Health of a process: the combined health of its parts.
 *
 * - live: the event loop runs. Independent of the parts; a process that is not live must be restarted.
 * - healthy: no part keeps failing.
 * - ready: every part can serve.
 */
export class Health {
  readonly #parts = new Map<string, PartHealth>();
  readonly #listeners = new Set<() => void>();

  /**
   * Sets the health of a part. Probes, metrics and messages show its name. *Shape:* `stream`, `source/kube/services`;
   * `waitingReasons` finds parts by such prefixes.
   */
  set(part: string, health: PartHealth): void {
    this.#parts.set(part, health);
    for (const listener of this.#listeners) listener();
  }

  /** Reports that the part works and can serve. */
  setReady(part: string): void {
    this.set(part, { isHealthy: true, isReady: true, reason: "" });
  }

  /** Reports that the part works but cannot serve yet. */
  setWaiting(part: string, reason: string): void {
    this.set(part, { isHealthy: true, isReady: false, reason });
  }

  /** Reports that the part fails. Its readiness does not change. */
  setFailing(part: string, reason: string): void {
    this.set(part, { isHealthy: false, isReady: this.#parts.get(part)?.isReady ?? false, reason });
  }

  get isHealthy(): boolean {
    return [...this.#parts.values()].every((part) => part.isHealthy);
  }

  /** True if all parts are ready. False until the first part has set its health. */
  get isReady(): boolean {
    return this.#parts.size > 0 && [...this.#parts.values()].every((part) => part.isReady);
  }

  /** Health of all parts, by name. */
  get parts(): ReadonlyMap<string, PartHealth> {
    return this.#parts;
  }

  /**
   * Returns the reasons of all parts that are not ready and whose name begins with `prefix`, each as `part: reason`.
   */
  waitingReasons(prefix: string): readonly string[] {
    const unready = [...this.#parts].filter(([part, { isReady }]) => !isReady && part.startsWith(prefix));
    return unready.map(([part, { reason }]) => `${part}: ${reason}`);
  }

  /** Calls `listener` after every change until `signal` aborts. */
  onChange(listener: () => void, signal: AbortSignal): void {
    this.#listeners.add(listener);
    signal.addEventListener("abort", () => this.#listeners.delete(listener), { once: true });
  }
}
