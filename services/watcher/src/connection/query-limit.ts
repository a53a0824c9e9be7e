import type { Refusals } from "./refusals.ts";

/**
 * Limits the queries in progress. A query (`isQuery`) is a call that is neither a node's or a relay's Watch nor a
 * single health check: it is for the inspect API, kpng.view.v1, reflection or a page, or it watches health.
 *
 * `serve` creates two from its options, one for watches of health. The handler of `makeCallHandler` calls `enter` for
 * each query, and `refuseQuery` answers those that are not admitted. Separate, because it counts and knows nothing
 * about requests.
 *
 * *Bound:* one counter for each connection with a query.
 */
export class QueryLimit {
  readonly #max: number;
  readonly #maxPerConnection: number;
  readonly #refusals: Refusals;
  readonly #byConnection = new WeakMap<object, number>();
  #open = 0;

  constructor(max: number, maxPerConnection: number, refusals: Refusals) {
    this.#max = max;
    this.#maxPerConnection = maxPerConnection;
    this.#refusals = refusals;
  }

  /** Adds a query. Returns a function that removes it, or undefined if it is refused. */
  enter(connection: object, peer: string): (() => void) | undefined {
    const count = this.#byConnection.get(connection) ?? 0;
    if (count >= this.#maxPerConnection || this.#open >= this.#max) {
      this.#refusals.add(count >= this.#maxPerConnection ? "connection-queries" : "queries", peer);
      return undefined;
    }
    this.#open += 1;
    this.#byConnection.set(connection, count + 1);
    return () => {
      this.#open -= 1;
      this.#byConnection.set(connection, (this.#byConnection.get(connection) ?? 1) - 1);
    };
  }
}
