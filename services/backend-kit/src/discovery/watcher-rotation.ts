import type { WatcherAddress } from "./resolve-apis.ts";

/**
 * Order in which a node tries the addresses of its watchers: rounds in random order, each with every address once, and
 * never the same address twice in a row. Random, so that the nodes that lost one watcher spread over the others. In
 * each round, addresses in the node's zone come first. Used by `dialWatchers`. It opens no connection: names are
 * resolved by `resolveApis`, connections opened by `dialAddress`.
 */
export class WatcherRotation {
  readonly #random: () => number;
  /** Addresses of this round that are still to be tried. */
  #round: string[] = [];
  #last = "";

  /**
   * `first` is tried first if it is in the list: the address that worked before a restart. `random` returns a number
   * from 0 up to but not including 1.
   */
  constructor(first: string | undefined, random: () => number = Math.random) {
    this.#random = random;
    if (first !== undefined) this.#round = [first];
  }

  /**
   * Starts a new round that may begin with any address, including the last one. For a watcher that asks its nodes to
   * move: if all of them avoided it, too many would go to the others.
   */
  startOver(): void {
    this.#round = [];
    this.#last = "";
  }

  /** Starts a new round, in which addresses of the node's zone come first again; the last address does not. */
  newRound(): void {
    this.#round = [];
  }

  /** Makes `key` the next address to try, if it is in the list then. */
  prefer(key: string): void {
    this.#round = [key];
    if (this.#last === key) this.#last = "";
  }

  /** Returns the next address to try; undefined if there is none. */
  next(addresses: readonly WatcherAddress[]): WatcherAddress | undefined {
    const byKey = new Map(addresses.map((address) => [address.key, address]));
    this.#round = this.#round.filter((key) => byKey.has(key) && (key !== this.#last || byKey.size === 1));
    if (this.#round.length === 0) this.#round = this.#shuffle([...byKey.values()]);
    const key = this.#round.shift();
    if (key === undefined) return undefined;
    this.#last = key;
    return byKey.get(key);
  }

  #shuffle(addresses: readonly WatcherAddress[]): string[] {
    const keys = addresses.map(({ key }) => key);
    for (let index = keys.length - 1; index > 0; index--) {
      const other = Math.floor(this.#random() * (index + 1));
      [keys[index], keys[other]] = [keys[other] ?? "", keys[index] ?? ""];
    }
    const near = new Set(addresses.filter(({ isNear }) => isNear).map(({ key }) => key));
    keys.sort((a, b) => Number(near.has(b)) - Number(near.has(a)));
    const [first, ...rest] = keys;
    return first === this.#last && rest.length > 0 ? [...rest, first] : keys;
  }
}
