import { wallClockMs } from "@kpng/process/wall-clock.ts";
import type { SyncStages, SyncTimes } from "../types/sync-update.ts";

/**
 * Measures the stages of one sync. `SyncLoop` creates one for each sync and passes it to the backend as `SyncStages`;
 * observers get the times. Separate from `SyncLoop`, because it lasts for one sync.
 */
export class StageClock implements SyncStages {
  readonly #startedAtMs = wallClockMs();
  readonly #receivedAtMs: number;
  #committingAtMs: number | undefined;

  /**
   * `receivedAtMs` is the receipt of the update, in milliseconds since 1970; undefined if no update caused the sync.
   */
  constructor(receivedAtMs: number | undefined) {
    this.#receivedAtMs = Math.min(receivedAtMs ?? this.#startedAtMs, this.#startedAtMs);
  }

  committing(): void {
    this.#committingAtMs ??= wallClockMs();
  }

  /** Ends the last stage and returns all times. */
  end(): SyncTimes {
    const [receivedAtMs, startedAtMs, endedAtMs] = [this.#receivedAtMs, this.#startedAtMs, wallClockMs()];
    return { receivedAtMs, startedAtMs, renderedAtMs: this.#committingAtMs ?? startedAtMs, endedAtMs };
  }
}
