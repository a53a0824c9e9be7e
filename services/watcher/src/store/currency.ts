import { type Position, type PositionKind, positionKinds } from "@kpng/model/forward/position.ts";
import type { CurrencySink, Verify, Versions } from "../source/source.ts";

/**
 * How far the state of a store is known to be current. `Store` creates it, and the source reports to it. The position
 * service calls `covers` when a node asks whether this watcher is older than the node's view; in doubt, `covers` asks
 * the source.
 *
 * *Bound:* one question to the source at a time, and at most two per second.
 *
 * Separate from `Store`, which asks its source nothing.
 */
export class Currency implements CurrencySink {
  readonly #state: CurrencyState;
  readonly #minIntervalMs: number;
  readonly #listeners = new Set<(event: CurrencyEvent) => void>();
  /** The versions in events, lists and bookmarks of the source: at least the versions of the state. */
  readonly #known = new Map<PositionKind, bigint>();
  #verify: Verify | undefined;
  #verifying: Promise<void> | undefined;
  #askedAtMs = Number.NEGATIVE_INFINITY;
  #staleReason: string | undefined;

  /** `minIntervalMs`: shortest time between two questions to the source. Default 500. */
  constructor(state: CurrencyState, minIntervalMs = standardIntervalMs) {
    this.#state = state;
    this.#minIntervalMs = minIntervalMs;
  }

  /** Why it is unknown whether the state is current; undefined while the server of the source answers. */
  get staleReason(): string | undefined {
    return this.#staleReason;
  }

  /** Calls `listener` when the store becomes stale or fresh again, and after each question to the source. */
  observe(listener: (event: CurrencyEvent) => void): void {
    this.#listeners.add(listener);
  }

  verifyWith(verify: Verify): void {
    this.#verify = verify;
  }

  known(versions: Versions): void {
    for (const kind of positionKinds) {
      const version = versions[kind];
      // Not the maximum: an etcd that lost data counts from a lower version.
      if (version !== undefined) this.#known.set(kind, version);
    }
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

  /** True if the state is not older than `needed`. In doubt, it asks the source, unless its server does not answer. */
  async covers(needed: Position): Promise<boolean> {
    for (let attempt = 0; attempt < maxAttempts; attempt++) {
      if (this.#coversNow(needed)) return true;
      if (needed.epoch > this.#state.position.epoch + maxEpochLead) return false;
      if (
        this.#verify === undefined ||
        this.#staleReason !== undefined ||
        this.#state.position.source !== needed.source
      )
        return false;
      if (this.#verifying === undefined) {
        this.#verifying = this.#ask(this.#verify, needed).finally(() => {
          this.#verifying = undefined;
        });
        attempt = maxAttempts - 1;
      }
      await this.#verifying;
    }
    return this.#coversNow(needed);
  }

  async #ask(verify: Verify, needed: Position): Promise<void> {
    const asksForEpoch = needed.epoch > this.#state.position.epoch;
    const intervalMs = asksForEpoch ? epochIntervalFactor * this.#minIntervalMs : this.#minIntervalMs;
    const waitMs = this.#askedAtMs + intervalMs - performance.now();
    if (waitMs > 0) await new Promise((resolve) => setTimeout(resolve, waitMs).unref());
    const isVerified = await verify(needed, needed.epoch > this.#state.position.epoch);
    const covers = isVerified && this.#hasVersions(needed);
    if (covers && needed.epoch > this.#state.position.epoch) this.#state.adoptEpoch(needed.epoch);
    this.#askedAtMs = performance.now();
    this.#tell({ kind: "asked", covers });
  }

  #coversNow(needed: Position): boolean {
    const { position } = this.#state;
    if (position.source !== needed.source) return false;
    return position.epoch >= needed.epoch && this.#hasVersions(needed);
  }

  #hasVersions(needed: Position): boolean {
    const { position } = this.#state;
    return positionKinds.every(
      (kind) => position[kind] >= needed[kind] || (this.#known.get(kind) ?? 0n) >= needed[kind],
    );
  }

  #tell(event: CurrencyEvent): void {
    for (const listener of this.#listeners) listener(event);
  }
}

/** The part of a store that {@link Currency} compares with needed positions. */
export interface CurrencyState {
  readonly position: Position;
  /** Assigns the current state to a new epoch. */
  adoptEpoch(epoch: bigint): void;
}

/** A store became stale or fresh, or its source answered whether it covers a position. */
export type CurrencyEvent =
  | { readonly kind: "stale"; readonly reason: string }
  | { readonly kind: "fresh" }
  | { readonly kind: "asked"; readonly covers: boolean };

/** Shortest time between two questions to the source, in milliseconds: any client can ask for any position. */
const standardIntervalMs = 500;

/** Maximum number of questions to the source that one call of `covers` waits for, including those of other callers. */
const maxAttempts = 3;

/**
 * Epochs that a node may be ahead: the restores that it has seen and this watcher has not. Beyond it, a node is not
 * believed, because one compromised node could otherwise use up the numbers for all.
 */
const maxEpochLead = 1_000n;

/** Questions about a newer epoch cost a list of everything, so they are asked less often by this factor. */
const epochIntervalFactor = 10;
