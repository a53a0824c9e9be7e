import type { AddressSet, Family } from "@kpng/model/address.ts";
import { realClock } from "@kpng/process/clock.ts";
import { readLocalAddresses } from "./local-addresses.ts";

/** Time for which a reading is used, as a multiple of the time that it took. */
const usesPerReading = 20;

/** Options of {@link RecentAddresses}. */
export interface RecentAddressesOptions {
  /** Default: `readLocalAddresses`. */
  readonly read?: (() => AddressSet) | undefined;
  /** Monotonic time in milliseconds. Default that of `realClock`. */
  readonly nowMs?: (() => number) | undefined;
}

/**
 * The node's own addresses, as they were read lately. `proxyBackend` makes one for all parts of a service proxy.
 *
 * Separate from `readLocalAddresses`, whose cost grows with the addresses of Services on an interface: with 10 000 of
 * them it takes longer than a sync of one Service. So a sync of a few Services uses the last reading for 20 times as
 * long as that reading took, and readings take at most a twentieth of a CPU. `RuleSets` calls `forget` before each full
 * sync and each check, so a new address is used after the next check at the latest, as on a node without changes.
 *
 * *Bound:* the node's own addresses.
 */
export class RecentAddresses {
  readonly #options: RecentAddressesOptions;
  readonly #readings = new Map<Family, { readonly addresses: readonly string[]; readonly untilMs: number }>();

  constructor(options: RecentAddressesOptions = {}) {
    this.#options = options;
  }

  /** Returns the addresses. A family is read when it is first accessed. */
  readonly read = (): AddressSet => {
    const of = (family: Family) => this.#ofFamily(family);
    return {
      get v4() {
        return of("v4");
      },
      get v6() {
        return of("v6");
      },
    };
  };

  /** Makes the next access read the addresses. */
  readonly forget = (): void => this.#readings.clear();

  #ofFamily(family: Family): readonly string[] {
    const { read = readLocalAddresses, nowMs = realClock.nowMs } = this.#options;
    const startMs = nowMs();
    const last = this.#readings.get(family);
    if (last !== undefined && startMs < last.untilMs) return last.addresses;
    const addresses = read()[family];
    const endMs = nowMs();
    this.#readings.set(family, { addresses, untilMs: endMs + usesPerReading * (endMs - startMs) });
    return addresses;
  }
}
