import type { AddressSet, Family } from "@kpng/model/address.ts";
import { realClock } from "@kpng/process/clock.ts";
import { readLocalAddresses } from "./local-addresses.ts";

/** Time for which a reading is used, as a multiple of the time that it took. */
const validityFactor = 20;

/** The longest time for which a reading is used. A process that was stopped meanwhile measures minutes. */
const mostValidMs = 1_000;

/** Options of {@link RecentAddresses}. */
export interface RecentAddressesOptions {
  /** Calls `onFailure` if the addresses may be wrong. Default: `readLocalAddresses`. */
  readonly read?: ((onFailure: () => void) => AddressSet) | undefined;
  /** Monotonic time in milliseconds. Default that of `realClock`. */
  readonly nowMs?: (() => number) | undefined;
}

/**
 * The node's own addresses, as of the last reading. `proxyBackend` makes one for all parts of a service proxy.
 *
 * Separate from `readLocalAddresses`, whose cost grows with the addresses of Services on an interface: with 10 000 of
 * them it takes longer than a sync of one Service. So a sync of a few Services uses the last reading for 20 times as
 * long as that reading took, but for a second at most: readings of less than 50 ms take at most a twentieth of a CPU. A
 * reading that failed is not used; the one before it is, if there is one, and the next access reads again. `RuleSets`
 * calls `forget` before each check, and before each sync except those of given Services; such a sync uses the last
 * reading, also if `FamilyRules` makes it a full one. So a new address is used after the next check at the latest, as
 * on a node without changes.
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

  /** Makes the next access read the addresses. The last ones stay, in case that reading fails. */
  readonly forget = (): void => {
    for (const [family, { addresses }] of this.#readings) {
      this.#readings.set(family, { addresses, untilMs: Number.NEGATIVE_INFINITY });
    }
  };

  #ofFamily(family: Family): readonly string[] {
    const { read = readLocalAddresses, nowMs = realClock.nowMs } = this.#options;
    const startMs = nowMs();
    const last = this.#readings.get(family);
    if (last !== undefined && startMs < last.untilMs) return last.addresses;
    let hasFailed = false;
    const onFailure = () => {
      hasFailed = true;
    };
    const addresses = read(onFailure)[family];
    if (hasFailed) return last?.addresses ?? addresses;
    const endMs = nowMs();
    const validMs = Math.min(validityFactor * (endMs - startMs), mostValidMs);
    this.#readings.set(family, { addresses, untilMs: endMs + validMs });
    return addresses;
  }
}
