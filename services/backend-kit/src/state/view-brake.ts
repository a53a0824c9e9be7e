import { type BrakeOptions, brakeList, type HeldDeletions } from "@kpng/model/brake.ts";
import type { ServiceView } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";

type Services = ReadonlyMap<ServiceKey, ServiceView>;

/**
 * The brake of a node: keeps Services that the view of another watcher lacks, if it lacks nearly all of them or of
 * their endpoints. A watcher that starts on an empty or wrong source offers such a view. `ViewState` asks it at each
 * batch. `followView` creates it, and calls `ViewState.release` when the hold is over. Separate from `ViewState`, which
 * does not know the time.
 *
 * Deletions by the same run of a watcher are changes, and apply at once. The Services are kept until a third watcher,
 * or the same one restarted, confirms that they are gone, after 30 s at the earliest, or until the hold is over.
 *
 * *Bound:* the kept Services.
 */
export class ViewBrake {
  readonly #options: BrakeOptions;
  readonly #nowMs: () => number;
  #held: HeldDeletions | undefined;
  #kept: Services = noServices;
  #instance: string | undefined;

  constructor(options: BrakeOptions, nowMs: () => number = () => performance.now()) {
    this.#options = options;
    this.#nowMs = nowMs;
  }

  /** Services that the watcher's view lacks, with their last value. */
  get kept(): Services {
    return this.#kept;
  }

  /** Time until the kept Services are deleted, in milliseconds; undefined if there are none. */
  get remainingMs(): number | undefined {
    return this.#held && Math.max(0, this.#held.sinceMs + this.#options.holdMs - this.#nowMs());
  }

  /**
   * Decides which Services of `before`, the view so far, are kept beside `offered`, the watcher's view after the batch.
   * `instance` is the run of the watcher, "" if unknown; `isStart` is true for the first batch of a stream.
   */
  decide(before: Services, offered: Services, instance: string, isStart: boolean): void {
    const isOther = isStart && (instance === "" || instance !== this.#instance);
    if (isOther && this.#instance !== undefined) {
      const has = (key: string): boolean => !isLost(before.get(key as ServiceKey), offered.get(key as ServiceKey));
      const list = { currentKeys: before.keys(), has, isConfirming: true, nowMs: this.#nowMs() };
      this.#held = brakeList(list, this.#held, this.#options);
      this.#keep(before, this.#held?.keys ?? []);
    } else if (this.#kept.size > 0) {
      const stillLost = [...this.#kept].filter(([key, service]) => isLost(service, offered.get(key)));
      if (stillLost.length < this.#kept.size)
        this.#keep(
          before,
          stillLost.map(([key]) => key),
        );
    }
    this.#instance = instance;
  }

  /** Ends the hold. */
  release(): void {
    this.#held = undefined;
    this.#kept = noServices;
  }

  #keep(before: Services, keys: Iterable<string>): void {
    const kept = new Map<ServiceKey, ServiceView>();
    for (const key of keys as Iterable<ServiceKey>) {
      const service = before.get(key);
      if (service !== undefined) kept.set(key, service);
    }
    this.#kept = kept;
    if (kept.size === 0) this.#held = undefined;
    else if (this.#held !== undefined) this.#held = { ...this.#held, keys: new Set<string>(kept.keys()) };
  }
}

const noServices: Services = new Map();

/** True if the Service is gone, or if all of its endpoints are. */
function isLost(before: ServiceView | undefined, offered: ServiceView | undefined): boolean {
  return offered === undefined || (offered.endpoints.length === 0 && (before?.endpoints.length ?? 0) > 0);
}
