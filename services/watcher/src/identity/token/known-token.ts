import { Code, ConnectError } from "@connectrpc/connect";
import type { Rights, TokenProblem } from "../rights.ts";

/**
 * A token with a valid signature, as `TokenChecker` remembers it. `admitCall` counts the calls with it, and ends them
 * when `ended` aborts. Separate from `TokenChecker`, which holds one for each token.
 *
 * | State | Meaning |
 * |---|---|
 * | accepted | no problem; it was reviewed, or the review is still to come |
 * | refused | a review refused it: calls with it have ended, and new ones are refused |
 *
 * A refused token is never accepted again; a later check starts with a new object.
 */
export class KnownToken {
  /** The token itself, which a review sends. */
  readonly text: string;
  readonly rights: Rights;
  /** Unix time in milliseconds. */
  readonly expiresAtMs: number;
  /** Calls in progress. */
  calls = 0;
  isReviewed = false;
  /** Monotonic time of the next review, by a call or a sweep of `TokenChecker`. A refused token is forgotten then. */
  reviewAtMs = Number.NEGATIVE_INFINITY;
  /** The review in progress. */
  reviewing: Promise<void> | undefined;
  readonly #ended = new AbortController();
  #problem: TokenProblem | undefined;

  constructor(text: string, rights: Rights, expiresAtMs: number) {
    this.text = text;
    this.rights = rights;
    this.expiresAtMs = expiresAtMs;
  }

  /** Estimated memory, in bytes. */
  get byteCount(): number {
    return this.text.length + 1_024;
  }

  /** Aborts when calls with this token must end; the reason is the error for the client. */
  get ended(): AbortSignal {
    return this.#ended.signal;
  }

  /** Why the token is refused; undefined while it is accepted. */
  get problem(): TokenProblem | undefined {
    return this.#problem;
  }

  /** Refuses the token, and ends its calls. */
  refuse(problem: TokenProblem): void {
    this.#problem = problem;
    this.#ended.abort(new ConnectError(problem.message, problem.code));
  }

  /** Refuses the token because it has expired. */
  expire(): void {
    this.refuse({ code: Code.Unauthenticated, message: "the token has expired" });
  }
}
