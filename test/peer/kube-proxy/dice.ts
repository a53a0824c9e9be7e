import { makeRandom, makeRandomBelow } from "@kpng/process/testing/random.ts";

/** Pseudo-random decisions, reproducible by seed. */
export class Dice {
  readonly #below: (below: number) => number;

  constructor(seed: number) {
    this.#below = makeRandomBelow(makeRandom(seed));
  }

  /** Returns true with a probability of `percent`. */
  chance(percent: number): boolean {
    return this.#below(100) < percent;
  }

  /** Returns a whole number from `from` to `to`, both included. */
  number(from: number, to: number): number {
    return from + this.#below(to - from + 1);
  }

  pick<T>(choices: readonly [T, ...T[]]): T {
    return choices[this.#below(choices.length)] ?? choices[0];
  }

  /** Returns one of the choices, with probabilities proportional to their weights. */
  weigh<const T extends string>(weights: Readonly<Record<T, number>>): T {
    const entries = Object.entries(weights) as [T, number][];
    let left = this.#below(entries.reduce((sum, [, weight]) => sum + weight, 0));
    for (const [choice, weight] of entries) {
      if (left < weight) return choice;
      left -= weight;
    }
    throw new Error("there are no weights");
  }

  /** Returns some of the items, each with the given probability, in order. */
  some<T>(items: readonly T[], percent: number): T[] {
    return items.filter(() => this.chance(percent));
  }

  shuffle<T>(items: readonly T[]): T[] {
    return items
      .map((item) => ({ item, order: this.#below(1 << 30) }))
      .toSorted((a, b) => a.order - b.order)
      .map(({ item }) => item);
  }
}
