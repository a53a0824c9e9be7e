import { wallClockMs } from "@kpng/process/wall-clock.ts";
import type { SyncStages, SyncTimes } from "../types/sync-update.ts";

/** Takes the times of one sync. */
export class StageClock implements SyncStages {
  readonly #startedAtMs = wallClockMs();
  readonly #receivedAtMs: number;
  #committingAtMs: number | undefined;

  /** `receivedAtMs` undefined: the sync was not caused by anything that was received. */
  constructor(receivedAtMs: number | undefined) {
    this.#receivedAtMs = Math.min(receivedAtMs ?? this.#startedAtMs, this.#startedAtMs);
  }

  committing(): void {
    this.#committingAtMs ??= wallClockMs();
  }

  end(): SyncTimes {
    const [receivedAtMs, startedAtMs, endedAtMs] = [this.#receivedAtMs, this.#startedAtMs, wallClockMs()];
    return { receivedAtMs, startedAtMs, renderedAtMs: this.#committingAtMs ?? startedAtMs, endedAtMs };
  }
}
