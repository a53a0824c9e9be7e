import type { Family } from "@kpng/model/address.ts";
import { makeRandom, makeRandomBelow } from "@kpng/process/random.ts";

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

/** Endpoint in the format of a slice. */
export interface RawEndpoint {
  readonly addresses: readonly string[];
  readonly conditions?: Readonly<Partial<Record<"ready" | "serving" | "terminating", boolean>>>;
  readonly nodeName?: string;
  readonly hostname?: string;
  readonly zone?: string;
  readonly targetRef?: { readonly kind: string; readonly name: string; readonly namespace: string };
  readonly hints?: {
    readonly forZones?: readonly { readonly name: string }[];
    readonly forNodes?: readonly { readonly name: string }[];
  };
}

type Conditions = NonNullable<RawEndpoint["conditions"]>;

/** Tendencies shared by all endpoints of a Service. Without them, conditions on all endpoints would rarely be true. */
interface Mood {
  readonly condition: "ready" | "mixed" | "unready" | "wild";
  readonly hint: "none" | "zones" | "nodes" | "both" | "incomplete" | "wild";
  readonly place: "anywhere" | "elsewhere" | "one node";
}

/** Returns endpoints of one family for the slices of a Service. */
export function makePods(dice: Dice, namespace: string, family: Family): RawEndpoint[] {
  const mood: Mood = {
    condition: dice.weigh({ ready: 25, mixed: 40, unready: 20, wild: 15 }),
    hint: dice.weigh({ none: 20, zones: 25, nodes: 20, both: 15, incomplete: 15, wild: 5 }),
    place: dice.weigh({ anywhere: 50, elsewhere: 25, "one node": 25 }),
  };
  const count = dice.chance(8) ? 0 : dice.number(1, 5);
  const pods = Array.from({ length: count }, (_, index) => makePod(dice, namespace, family, mood, index));
  const [first, second] = pods;
  // Two endpoints share addresses. The used address still differs, because only the first address is used.
  if (first !== undefined && second !== undefined && dice.chance(25)) {
    const [a = "", b = ""] = [first.addresses[0], second.addresses[0]];
    const [third, fourth] = dice.pick([
      [b, a],
      [`${a}9`, `${a}9`],
    ]);
    pods[0] = { ...first, addresses: [a, third ?? ""] };
    pods[1] = { ...second, addresses: [b, fourth ?? ""] };
  }
  return pods;
}

function makePod(dice: Dice, namespace: string, family: Family, mood: Mood, index: number): RawEndpoint {
  const address = (last: number): string =>
    family === "v4" ? `10.244.${Number(namespace.slice(1)) % 250}.${last}` : `fd00:244::${last}`;
  const conditions = makeConditions(dice, mood.condition);
  const isReady = conditions?.ready ?? true;
  const nodeName = makeNodeName(dice, mood.place);
  const hints = makeHints(dice, mood.hint, isReady);
  const hasPod = dice.chance(65);
  return {
    addresses: dice.chance(15) ? [address(10 + index), address(100 + index)] : [address(10 + index)],
    ...(conditions === undefined ? {} : { conditions }),
    ...(nodeName === undefined ? {} : { nodeName }),
    ...(dice.chance(15) ? { hostname: `host-${index}` } : {}),
    ...(dice.chance(15) ? { zone: dice.pick(["a", "b"]) } : {}),
    ...(hasPod ? { targetRef: { kind: "Pod", name: `pod-${index}`, namespace } } : {}),
    ...(hints === undefined ? {} : { hints }),
  };
}

const lives = {
  ready: { ready: true, serving: true, terminating: false },
  starting: { ready: false, serving: false, terminating: false },
  draining: { ready: false, serving: true, terminating: true },
  dead: { ready: false, serving: false, terminating: true },
};

function makeConditions(dice: Dice, mood: Mood["condition"]): RawEndpoint["conditions"] {
  switch (mood) {
    case "ready":
      return dice.chance(25) ? undefined : unsay(dice, lives.ready);
    case "mixed":
      return unsay(dice, lives[dice.weigh({ ready: 50, starting: 15, draining: 25, dead: 10 })]);
    case "unready":
      return unsay(dice, lives[dice.weigh({ starting: 30, draining: 50, dead: 20 })]);
    case "wild":
      return wildConditions(dice);
  }
}

/** Omits some conditions whose defaults equal their values. */
function unsay(dice: Dice, conditions: Conditions): Conditions {
  const defaults: Conditions = { ready: true, serving: true, terminating: false };
  const entries = Object.entries(conditions).filter(
    ([name, value]) => value !== defaults[name as keyof Conditions] || !dice.chance(30),
  );
  return Object.fromEntries(entries);
}

/** Returns any combination of conditions, including combinations that no controller creates. */
export function wildConditions(dice: Dice): Conditions {
  const names = dice.some(["ready", "serving", "terminating"], 67);
  return Object.fromEntries(names.map((name) => [name, dice.chance(50)]));
}

function makeNodeName(dice: Dice, mood: Mood["place"]): string | undefined {
  if (dice.chance(8)) return undefined;
  switch (mood) {
    case "anywhere":
      return dice.pick(["n1", "n2", "n3", "n4"]);
    case "elsewhere":
      return dice.chance(85) ? "n4" : "n9";
    case "one node":
      return "n1";
  }
}

function makeHints(dice: Dice, mood: Mood["hint"], isReady: boolean): RawEndpoint["hints"] {
  const named = (names: readonly string[]) => names.map((name) => ({ name }));
  const forZones = named(dice.chance(25) ? ["a", "b"] : [dice.pick(["a", "a", "a", "b", "b", "c", "d", ""])]);
  const forNodes = named(dice.chance(25) ? ["n1", "n3"] : [dice.pick(["n1", "n2", "n3", "n4", "n9"])]);
  // An endpoint that is not ready does not disable hints if it has none.
  if (!isReady && dice.chance(40)) return undefined;
  switch (mood) {
    case "none":
      return undefined;
    case "zones":
      return { forZones };
    case "nodes":
      return { forNodes };
    case "both":
      return { forZones, forNodes };
    case "incomplete":
      return dice.chance(35) ? {} : { forZones, ...(dice.chance(70) ? { forNodes } : {}) };
    case "wild":
      return { ...(dice.chance(50) ? { forZones } : {}), ...(dice.chance(50) ? { forNodes } : {}) };
  }
}
