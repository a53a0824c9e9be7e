import type { WatcherPlace } from "./resolve-apis.ts";

/**
 * The order in which places are tried: each once in random order, then again in another, never the same twice in a row.
 *
 * Random, so that the nodes that lost one watcher spread over the others.
 */
export class PlaceChooser {
  readonly #random: () => number;
  /** Of this round, still to be tried. */
  #round: string[] = [];
  #last = "";

  /** `first` is tried first if it is there: where it worked before. `random` returns from 0 up to but not 1. */
  constructor(first: string | undefined, random: () => number = Math.random) {
    this.#random = random;
    if (first !== undefined) this.#round = [first];
  }

  /**
   * Every place is as good as any other next time, the last one included: of nodes that only left it out, too many
   * would go to a place that has just come back.
   */
  beginAnew(): void {
    this.#round = [];
    this.#last = "";
  }

  /** Returns the next place to try; undefined if there is none. */
  next(places: readonly WatcherPlace[]): WatcherPlace | undefined {
    const byKey = new Map(places.map((place) => [place.key, place]));
    this.#round = this.#round.filter((key) => byKey.has(key) && (key !== this.#last || byKey.size === 1));
    if (this.#round.length === 0) this.#round = this.#newRound([...byKey.keys()]);
    const key = this.#round.shift();
    if (key === undefined) return undefined;
    this.#last = key;
    return byKey.get(key);
  }

  #newRound(keys: string[]): string[] {
    for (let index = keys.length - 1; index > 0; index--) {
      const other = Math.floor(this.#random() * (index + 1));
      [keys[index], keys[other]] = [keys[other] ?? "", keys[index] ?? ""];
    }
    const [first, ...rest] = keys;
    return first === this.#last && rest.length > 0 ? [...rest, first] : keys;
  }
}
