import { hash } from "node:crypto";
import { Code, ConnectError } from "@connectrpc/connect";
import { addCounter } from "@kpng/process/health/metrics.ts";
import type { Log } from "@kpng/process/log.ts";
import { RepeatLimit } from "@kpng/process/log.ts";
import { LRUCache } from "lru-cache";
import { type Counter, Registry } from "prom-client";
import type { ProofProblem, Rights } from "./rights.ts";
import { claimsOf, type Review, type ReviewToken, rightsOfToken, type TokenAccounts } from "./token-review.ts";

export type CheckedToken =
  | { readonly kind: "accepted"; readonly rights: Rights }
  | { readonly kind: "refused"; readonly problem: ProofProblem };

export interface TokenCheckerOptions {
  readonly review: ReviewToken;
  /** Audience that tokens must have (`--token-audience`). */
  readonly audience: string;
  readonly accounts: TokenAccounts;
  readonly log: Log;
  /** Counts reviews by result. Default: reviews are not counted. */
  readonly reviews?: Counter<"result"> | undefined;
  /** Time after which a token is reviewed again, in milliseconds. Default 300 000. */
  readonly reviewMs?: number | undefined;
  /** Delay between a failed review and the next attempt, in milliseconds. Default 10 000. */
  readonly retryMs?: number | undefined;
  /** Returns the Unix time in milliseconds. Default Date.now. */
  readonly unixMs?: (() => number) | undefined;
  /** Returns the monotonic time in milliseconds. Default performance.now. */
  readonly now?: (() => number) | undefined;
}

/**
 * Checks the tokens of calls. The API server reviews a token when it is first seen, and again every `reviewMs` while
 * calls use it: 18 reviews a second for 5 000 nodes. A deleted pod loses its rights, and its calls are ended, after
 * about `reviewMs`. Calls with an accepted token do not wait for its next review. So a revoked token that was not used
 * for longer than that can begin a call, which ends seconds later, when the review has refused the token.
 *
 * **While the API server does not answer**, an accepted token stays accepted until it expires. A call with a new token,
 * for example one that the kubelet has just renewed, gets UNAVAILABLE; its node keeps its rules and tries again.
 *
 * **Abuse.** Anybody can forge a token, so its claims are trusted only as a reason to refuse it: a token that has
 * expired, or that names another audience or an account without a right, is refused without a review. A token that a
 * review refused stays refused for a minute. In addition, tokens from an address are no longer reviewed once 20 of them
 * have been refused within a minute, and new tokens of an account on a node are no longer reviewed once 60 of them have
 * been accepted within a minute, because root on that node can request any number of tokens. Up to 12 first reviews and
 * 4 reviews of known tokens run at a time, so that a flood of new tokens does not delay the end of a revoked token.
 *
 * *Bound:* 25 000 accepted and 10 000 refused tokens, keyed by their hash. `Admission` bounds the calls that wait for a
 * review. *Cost:* one hash when a call begins, and another one every 2.5 seconds while it lasts.
 */
export class TokenChecker {
  readonly #options: TokenCheckerOptions;
  readonly #reviews: Counter<"result">;
  readonly #accepted = new LRUCache<string, AcceptedToken>({ max: 25_000 });
  readonly #refused = new LRUCache<string, ProofProblem>({ max: 10_000, ttl: 60_000 });
  /** Numbers of tokens in the minute since the first: refused by address, accepted by {@link Rights.identity}. */
  readonly #recent = new LRUCache<string, number>({ max: 10_000, ttl: 60_000, noUpdateTTL: true });
  /** Reviews in progress, by the hash of the token. */
  readonly #checking = new Map<string, Promise<CheckedToken>>();
  readonly #firstReviews = new ReviewQueue(12);
  readonly #repeatedReviews = new ReviewQueue(4);
  readonly #repeats = new RepeatLimit({ burst: 3 });
  readonly #stop = new AbortController();
  readonly #now: () => number;

  constructor(options: TokenCheckerOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
    this.#reviews = options.reviews ?? makeReviewCounter(new Registry());
  }

  /** Ends reviews in progress. */
  stop(): void {
    this.#stop.abort();
  }

  /**
   * Checks a token that came from an address; returns synchronously if the token is known. Never rejects. *Shape of the
   * address:* without a port, because refused tokens are counted by it.
   */
  check(text: string, address = ""): CheckedToken | Promise<CheckedToken> {
    if (text.length > maxTokenBytes) return { kind: "refused", problem: unauthenticated("the token is too long") };
    const key = hash("sha256", text, "base64");
    let token = this.#accepted.get(key);
    if (token !== undefined && this.#hasExpired(token.expiresAtMs)) token = undefined;
    if (token !== undefined) {
      const isDue = token.reviewAtMs <= this.#now() && !this.#checking.has(key);
      // The call does not wait: while the API server hangs, the reviews of all nodes would take hours.
      if (isDue) void this.#startReview(key, text, address, token);
      return { kind: "accepted", rights: token.rights };
    }
    const problem = this.#refused.get(key);
    if (problem !== undefined) return { kind: "refused", problem };
    const earlier = this.#checking.get(key);
    if (earlier !== undefined) return earlier;
    const claimProblem = this.#claimProblem(text, address);
    if (claimProblem !== undefined) return this.#logged({ kind: "refused", problem: claimProblem });
    return this.#startReview(key, text, address);
  }

  #startReview(key: string, text: string, address: string, accepted?: AcceptedToken): Promise<CheckedToken> {
    const reviews = accepted === undefined ? this.#firstReviews : this.#repeatedReviews;
    const checking = reviews
      .run(() => this.#reviewToken(key, text, address, accepted))
      .then((result) => this.#logged(result))
      .finally(() => this.#checking.delete(key));
    this.#checking.set(key, checking);
    return checking;
  }

  /**
   * Checks a token regularly until a call closes. The returned signal aborts, with the error for the client, when the
   * token is refused or has expired.
   */
  follow(text: string, address: string | undefined, call: Closable): AbortSignal {
    const { reviewMs = standardReviewMs, retryMs = standardRetryMs } = this.#options;
    const ended = new AbortController();
    // A call that is already closed emits no further event, so the timer would never end.
    if (call.closed) return ended.signal;
    const check = async (): Promise<void> => {
      const result = await this.check(text, address);
      if (result.kind === "accepted" || result.problem.code !== Code.Unauthenticated) return;
      clearInterval(timer);
      ended.abort(new ConnectError(result.problem.message, result.problem.code));
    };
    // A quarter, so that a review is at most that late; the minimum of 5 ms is for tests.
    const timer = setInterval(() => void check(), Math.max(5, Math.min(10_000, reviewMs / 4, retryMs / 4))).unref();
    call.once("close", () => clearInterval(timer));
    return ended.signal;
  }

  /** Returns the reason for refusing a token without a review; undefined if there is none. */
  #claimProblem(text: string, address: string): ProofProblem | undefined {
    const claims = claimsOf(text);
    if (claims === undefined) return unauthenticated("the token is malformed, or not a ServiceAccount's");
    const { audience, accounts } = this.#options;
    const { identity } = rightsOfToken(claims, accounts);
    if (!claims.audiences.includes(audience))
      return unauthenticated(`the token is for another audience than "${audience}"`);
    if (!Object.values(accounts).some((some) => some.has(claims.account))) {
      return unauthenticated(`the token's ${identity} has no right at this watcher`);
    }
    if (this.#hasExpired(claims.expiresAtMs)) return unauthenticated("the token has expired");
    // Tested when a call comes, and again when the review's turn comes, because many tokens may have come together.
    if ((this.#recent.get(`address ${address}`) ?? 0) >= maxRefused) {
      return unavailable("too many tokens of this address were refused in the last minute");
    }
    const isMany = (this.#recent.get(identity) ?? 0) >= maxAccepted;
    return isMany ? unavailable(`too many new tokens of ${identity} in the last minute`) : undefined;
  }

  /** Reviews a new or an accepted token. An accepted one stays accepted if the API server cannot decide. */
  async #reviewToken(key: string, text: string, address: string, accepted?: AcceptedToken): Promise<CheckedToken> {
    const isNew = accepted === undefined;
    const claimProblem = isNew ? this.#claimProblem(text, address) : undefined;
    if (claimProblem !== undefined) return { kind: "refused", problem: claimProblem };
    const review = await this.#review(text, isNew ? this.#firstReviews : this.#repeatedReviews);
    switch (review.kind) {
      case "valid": {
        const rights = rightsOfToken(review, this.#options.accounts);
        if (isNew) this.#count(rights.identity);
        const expiresAtMs = claimsOf(text)?.expiresAtMs ?? 0;
        this.#accepted.set(key, { rights, expiresAtMs, reviewAtMs: this.#nextReviewMs() });
        return { kind: "accepted", rights };
      }
      case "invalid": {
        if (isNew) this.#count(`address ${address}`);
        const problem = unauthenticated(`the API server refused the token: ${review.reason}`);
        this.#accepted.delete(key);
        this.#refused.set(key, problem);
        return { kind: "refused", problem };
      }
      default: {
        this.#logFailure(review);
        if (accepted !== undefined) {
          accepted.reviewAtMs = this.#now() + (this.#options.retryMs ?? standardRetryMs);
          return { kind: "accepted", rights: accepted.rights };
        }
        const reason =
          review.kind === "forbidden"
            ? `the watcher may not create TokenReviews: ${review.reason}`
            : `the API server cannot check a new token: ${review.reason}; try again later`;
        return { kind: "refused", problem: unavailable(reason) };
      }
    }
  }

  /** Reviews a token, unless one of the same reviews failed less than {@link failedMs} ago. */
  async #review(text: string, reviews: ReviewQueue): Promise<Review> {
    const { failure } = reviews;
    if (failure !== undefined && failure.untilMs > this.#now()) return failure.review;
    const limit = AbortSignal.any([this.#stop.signal, AbortSignal.timeout(reviewLimitMs)]);
    const review = await this.#options.review(text, limit);
    this.#reviews.inc({ result: review.kind });
    if (review.kind === "forbidden" || review.kind === "unknown") {
      reviews.failure = { review, untilMs: this.#now() + failedMs };
    }
    return review;
  }

  /** Returns a random time, so that tokens that arrived together are reviewed at different times. */
  #nextReviewMs(): number {
    const { reviewMs = standardReviewMs } = this.#options;
    return this.#now() + reviewMs * (0.8 + 0.2 * Math.random());
  }

  #count(key: string): void {
    this.#recent.set(key, (this.#recent.get(key) ?? 0) + 1);
  }

  #hasExpired(expiresAtMs: number): boolean {
    return expiresAtMs + toleranceMs <= (this.#options.unixMs ?? Date.now)();
  }

  #logFailure({ kind, reason }: Exclude<Review, { kind: "valid" }>): void {
    this.#repeats.add(kind, () =>
      this.#options.log.error("the API server cannot review tokens: new tokens are refused", { reason }),
    );
  }

  #logged(result: CheckedToken): CheckedToken {
    if (result.kind === "refused") {
      const { message: reason } = result.problem;
      this.#repeats.add(reason, () => this.#options.log.info("token of a client refused", { reason }));
    }
    return result;
  }
}

/**
 * Registers the counter of reviews. A watcher that accepts no tokens has this counter, too, so that dashboards find the
 * series.
 */
export function makeReviewCounter(registry: Registry): Counter<"result"> {
  const help =
    "Reviews of tokens by the API server, by result; forbidden: the watcher lacks the right; unknown: no answer";
  const results: readonly Review["kind"][] = ["valid", "invalid", "forbidden", "unknown"];
  return addCounter(registry, "kpng_token_reviews_total", help, "result", results);
}

interface Closable {
  readonly closed: boolean;
  once(event: "close", listener: () => void): unknown;
}

interface AcceptedToken {
  readonly rights: Rights;
  /** Unix time in milliseconds. */
  readonly expiresAtMs: number;
  /** Monotonic time of the next review. */
  reviewAtMs: number;
}

/** Runs at most `max` reviews at a time, and queues the others without a bound. */
class ReviewQueue {
  /** The last result that decided nothing. */
  failure: { readonly review: Review; readonly untilMs: number } | undefined;
  readonly #max: number;
  readonly #queue: (() => void)[] = [];
  #running = 0;

  constructor(max: number) {
    this.#max = max;
  }

  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.#running >= this.#max) await new Promise<void>((resolve) => this.#queue.push(resolve));
    else this.#running += 1;
    try {
      return await work();
    } finally {
      const next = this.#queue.shift();
      if (next === undefined) this.#running -= 1;
      else next();
    }
  }
}

function unauthenticated(message: string): ProofProblem {
  return { code: Code.Unauthenticated, message };
}

function unavailable(message: string): ProofProblem {
  return { code: Code.Unavailable, message };
}

const standardReviewMs = 300_000;
const standardRetryMs = 10_000;

/** Tolerated difference between the clocks of the API server and the watcher, in milliseconds. */
const toleranceMs = 30_000;

/** Maximum length of a token. API servers issue tokens of one to two kilobytes. */
const maxTokenBytes = 8_192;

/** Maximum duration of a review, in milliseconds; the result is then "unknown". */
const reviewLimitMs = 5_000;

/**
 * Time after a failed review during which the others in its queue fail for the same reason, in milliseconds. Without it,
 * each waiting token would cause a request to an API server that does not answer. Known tokens have their own queue,
 * because new ones, which anyone can send, must not delay their reviews.
 */
const failedMs = 1_000;

/** Maximum number of refused tokens of an address per minute; further ones are not reviewed. */
const maxRefused = 20;

/** Maximum number of accepted new tokens of an account on a node per minute; further ones are not reviewed. */
const maxAccepted = 60;
