import type { CurrencySink, Versions } from "../source/source.ts";

/** Whether the state of a store is known to be that of its source's server. The source reports it. */
export class Currency implements CurrencySink {
  /** Passes on the versions up to which the state is current. */
  readonly known: (versions: Versions) => void;
  readonly #listeners = new Set<(event: CurrencyEvent) => void>();
  #staleReason: string | undefined;

  constructor(known: (versions: Versions) => void) {
    this.known = known;
  }

  /** Why it is unknown whether the state is current; undefined while it is known. */
  get staleReason(): string | undefined {
    return this.#staleReason;
  }

  /** Calls `listener` when the store becomes stale or fresh again. */
  observe(listener: (event: CurrencyEvent) => void): void {
    this.#listeners.add(listener);
  }

  stale(reason: string): void {
    const wasStale = this.#staleReason !== undefined;
    this.#staleReason = reason;
    if (!wasStale) this.#tell({ kind: "stale", reason });
  }

  fresh(): void {
    if (this.#staleReason === undefined) return;
    this.#staleReason = undefined;
    this.#tell({ kind: "fresh" });
  }

  #tell(event: CurrencyEvent): void {
    for (const listener of this.#listeners) listener(event);
  }
}

/** A store became stale or fresh. */
export type CurrencyEvent = { readonly kind: "stale"; readonly reason: string } | { readonly kind: "fresh" };
