import { createHash } from "node:crypto";
import { Code, ConnectError } from "@connectrpc/connect";
import { addCounter } from "@kpng/process/health/metrics.ts";
import type { Log } from "@kpng/process/log.ts";
import { RepeatLimit } from "@kpng/process/log.ts";
import { LRUCache } from "lru-cache";
import { type Counter, Registry } from "prom-client";
import type { Rights, TokenProblem } from "./rights.ts";
import { claimsOf, type Review, type ReviewToken, rightsOfToken, type TokenAccounts } from "./token-review.ts";

/** Result of a check: a token that is accepted, or why it is not. */
export type CheckedToken =
  | { readonly kind: "accepted"; readonly token: KnownToken }
  | { readonly kind: "refused"; readonly problem: TokenProblem };

/** Options of {@link TokenChecker}. */
export interface TokenCheckerOptions {
  readonly review: ReviewToken;
  /** Audience that tokens must have (`--token-audience`). */
  readonly audience: string;
  readonly accounts: TokenAccounts;
  readonly log: Log;
  /** Default: not exposed. */
  readonly reviews?: Counter<"result"> | undefined;
  /** Time after which a token is reviewed again, in milliseconds. Default 300 000. */
  readonly reviewMs?: number | undefined;
  /** Time after a failed review until the next, in milliseconds. Default 10 000. */
  readonly retryMs?: number | undefined;
  /** Unix time in milliseconds. Default Date.now. */
  readonly unixMs?: (() => number) | undefined;
}

/**
 * Checks the tokens that clients send with their calls. The API server reviews a token when it is first seen, and again
 * every `reviewMs` while calls use it, so a token ends its calls about `reviewMs` after its pod was deleted.
 *
 * **While the API server does not answer**, a token that was accepted before stays accepted until it expires. A new one
 * gives UNAVAILABLE: a node that comes with one, for example after the kubelet renewed it, keeps its rules and tries
 * again. A watcher that was restarted meanwhile has no state for it either.
 *
 * **Who can cause reviews.** Anybody can write a token, so its claims decide only what is not reviewed: tokens of
 * accounts without a right, for another audience, or expired ones. Of the others, an address may have 20 refused in a
 * minute, and a pod 60 accepted, since root on its node can ask for as many as it likes. 12 first reviews run at a time,
 * and 4 of tokens in use, so that a flood of new tokens does not delay the end of a revoked one.
 *
 * *Bound:* 64 MiB of accepted tokens (25 000), beyond which the calls of the oldest end, and 10 000 refused ones, by
 * their hash. `Admission` bounds the calls that wait for a review.
 *
 * *Cost:* a hash for each call; nothing for each message.
 */
export class TokenChecker {
  readonly #options: TokenCheckerOptions;
  readonly #reviews: Counter<"result">;
  readonly #known: LRUCache<string, KnownToken>;
  readonly #refused = new LRUCache<string, TokenProblem>({ max: 10_000, ttl: 60_000 });
  /** Reviews of the last minute: refused ones by address, accepted ones by identity. */
  readonly #recent = new LRUCache<string, number>({ max: 10_000, ttl: 60_000, noUpdateTTL: true });
  /** First reviews in progress, by the hash of the token. */
  readonly #checking = new Map<string, Promise<CheckedToken>>();
  readonly #firstReviews = new ConcurrencyLimit(12);
  readonly #repeatedReviews = new ConcurrencyLimit(4);
  readonly #repeats = new RepeatLimit({ burst: 3 });
  readonly #stop = new AbortController();
  /** Result of a first review that failed less than a second ago. */
  #failure: { readonly review: Review; readonly untilMs: number } | undefined;
  #sweeping: NodeJS.Timeout | undefined;

  constructor(options: TokenCheckerOptions) {
    this.#options = options;
    this.#reviews = options.reviews ?? makeReviewCounter(new Registry());
    this.#known = new LRUCache({
      maxSize: 64 << 20,
      sizeCalculation: ({ text }) => text.length + 1_024,
      dispose: (token, _key, reason) => {
        // Its calls, which nothing would review any more, begin again.
        if (reason === "evict") token.refuse(unavailable("the watcher has too many tokens to review"));
      },
    });
  }

  /** Starts to end expired tokens and to repeat reviews. Does not keep the process alive. */
  start(): void {
    const { reviewMs = standardReviewMs, retryMs = standardRetryMs } = this.#options;
    const intervalMs = Math.max(5, Math.min(1_000, reviewMs / 4, retryMs / 4));
    this.#sweeping = setInterval(() => this.#sweep(), intervalMs).unref();
  }

  /** Ends reviews in progress. */
  stop(): void {
    clearInterval(this.#sweeping);
    this.#stop.abort();
  }

  /**
   * Checks a token that came from an address. Returns the result at once if the token is known and needs no review.
   * Never rejects.
   */
  check(text: string, address = ""): CheckedToken | Promise<CheckedToken> {
    if (text.length > maxTokenBytes) return { kind: "refused", problem: unauthenticated("the token is too long") };
    const key = hashOf(text);
    const known = this.#known.get(key);
    if (known !== undefined && this.#isAlive(known)) {
      if (known.reviewAtMs > performance.now()) return { kind: "accepted", token: known };
      return this.#reviewAgain(known).then(() => {
        const { problem } = known;
        return problem === undefined ? { kind: "accepted", token: known } : { kind: "refused", problem };
      });
    }
    const problem = this.#refused.get(key);
    if (problem !== undefined) return { kind: "refused", problem };
    const running = this.#checking.get(key);
    if (running !== undefined) return running;
    const hopeless = this.#whyHopeless(text, address);
    if (hopeless !== undefined) return this.#logged({ kind: "refused", problem: hopeless });
    const checking = this.#firstReviews
      .run(() => this.#reviewNew(key, text, address))
      .then((result) => this.#logged(result))
      .finally(() => this.#checking.delete(key));
    this.#checking.set(key, checking);
    return checking;
  }

  /** Returns why a token need not be reviewed; undefined if it must be. */
  #whyHopeless(text: string, address: string): TokenProblem | undefined {
    const claims = claimsOf(text);
    if (claims === undefined) return unauthenticated("the token is malformed, or not a ServiceAccount's");
    const { audience, accounts } = this.#options;
    const { identity } = rightsOfToken(claims, accounts);
    if (!claims.audiences.includes(audience)) return unauthenticated("the token is for another audience");
    if (!Object.values(accounts).some((some) => some.has(claims.account))) {
      return unauthenticated(`the token's ${identity} has no right at this watcher`);
    }
    if (this.#hasExpired(claims.expiresAtMs)) return expired;
    if ((this.#recent.get(`address ${address}`) ?? 0) >= maxRefused) {
      return unavailable("too many tokens of this address were refused in the last minute");
    }
    const isMany = (this.#recent.get(identity) ?? 0) >= maxAccepted;
    return isMany ? unavailable(`too many new tokens of ${identity} in the last minute`) : undefined;
  }

  async #reviewNew(key: string, text: string, address: string): Promise<CheckedToken> {
    const failure =
      this.#failure !== undefined && this.#failure.untilMs > performance.now() ? this.#failure : undefined;
    const review = failure?.review ?? (await this.#review(text));
    switch (review.kind) {
      case "valid": {
        const rights = rightsOfToken(review, this.#options.accounts);
        this.#count(rights.identity);
        const token = new KnownToken(text, rights, claimsOf(text)?.expiresAtMs ?? 0);
        token.reviewAtMs = this.#nextReviewMs();
        this.#known.set(key, token);
        return { kind: "accepted", token };
      }
      case "invalid": {
        this.#count(`address ${address}`);
        const problem = unauthenticated(`the API server refused the token: ${review.reason}`);
        this.#refused.set(key, problem);
        return { kind: "refused", problem };
      }
      default: {
        if (failure === undefined) this.#failure = { review, untilMs: performance.now() + failedMs };
        this.#logFailure(review);
        const reason =
          review.kind === "forbidden"
            ? `the watcher may not review tokens: ${review.reason}`
            : `the API server cannot be asked about a new token: ${review.reason}; try again, rules stay meanwhile`;
        return { kind: "refused", problem: unavailable(reason) };
      }
    }
  }

  /** Reviews a known token, and refuses it if the API server does. Calls at the same time share one review. */
  #reviewAgain(token: KnownToken): Promise<void> {
    token.reviewing ??= this.#repeatedReviews
      .run(() => this.#review(token.text))
      .then((review) => {
        const { retryMs = standardRetryMs } = this.#options;
        token.reviewAtMs = review.kind === "valid" ? this.#nextReviewMs() : performance.now() + retryMs;
        if (review.kind === "invalid") {
          const problem = unauthenticated(`the API server refused the token: ${review.reason}`);
          const { calls, rights } = token;
          this.#end(token, problem);
          if (calls === 0) return;
          const fields = { identity: rights.identity, calls, reason: problem.message };
          this.#options.log.info("token revoked: its calls end", fields);
        } else if (review.kind !== "valid") this.#logFailure(review);
      })
      .finally(() => {
        token.reviewing = undefined;
      });
    return token.reviewing;
  }

  async #review(text: string): Promise<Review> {
    const limit = AbortSignal.any([this.#stop.signal, AbortSignal.timeout(reviewLimitMs)]);
    const review = await this.#options.review(text, limit);
    this.#reviews.inc({ result: review.kind });
    return review;
  }

  /** Spread, so that tokens that came together are reviewed at different times. */
  #nextReviewMs(): number {
    return performance.now() + (this.#options.reviewMs ?? standardReviewMs) * (0.8 + 0.2 * Math.random());
  }

  #count(of: string): void {
    this.#recent.set(of, (this.#recent.get(of) ?? 0) + 1);
  }

  #sweep(): void {
    for (const token of [...this.#known.values()]) {
      if (token.calls === 0) continue;
      if (!this.#isAlive(token)) this.#end(token, expired);
      else if (token.reviewAtMs <= performance.now()) void this.#reviewAgain(token);
    }
  }

  #end(token: KnownToken, problem: TokenProblem): void {
    const key = hashOf(token.text);
    this.#known.delete(key);
    this.#refused.set(key, problem);
    token.refuse(problem);
  }

  #isAlive(token: KnownToken): boolean {
    return token.problem === undefined && !this.#hasExpired(token.expiresAtMs);
  }

  #hasExpired(expiresAtMs: number): boolean {
    return expiresAtMs + toleranceMs <= (this.#options.unixMs ?? Date.now)();
  }

  #logFailure({ kind, reason }: Exclude<Review, { kind: "valid" }>): void {
    this.#repeats.add(kind, () =>
      this.#options.log.error("tokens cannot be reviewed: new ones are refused", { reason }),
    );
  }

  #logged(result: CheckedToken): CheckedToken {
    if (result.kind === "refused") {
      const { message: reason } = result.problem;
      this.#repeats.add(reason, () => this.#options.log.info("token refused", { reason }));
    }
    return result;
  }
}

/** Registers the counter of reviews; a watcher without tokens has it, too, so that a dashboard finds the series. */
export function makeReviewCounter(registry: Registry): Counter<"result"> {
  const help =
    "Reviews of tokens by the API server, by result; forbidden: the watcher lacks the right; unknown: no answer";
  const results: readonly Review["kind"][] = ["valid", "invalid", "forbidden", "unknown"];
  return addCounter(registry, "kpng_token_reviews_total", help, "result", results);
}

/**
 * A token that the API server has accepted, shared by all calls with it. Once it is refused or expires, it is never
 * accepted again: its calls end, and a later check starts with a new object.
 */
export class KnownToken {
  /** The token itself, which a review sends. */
  readonly text: string;
  readonly rights: Rights;
  /** Unix time in milliseconds. */
  readonly expiresAtMs: number;
  /** Calls in progress; whoever begins and ends them counts. */
  calls = 0;
  /** Monotonic time of the next review. */
  reviewAtMs = Number.NEGATIVE_INFINITY;
  /** The repeated review in progress. */
  reviewing: Promise<void> | undefined;
  readonly #ended = new AbortController();
  #problem: TokenProblem | undefined;

  constructor(text: string, rights: Rights, expiresAtMs: number) {
    this.text = text;
    this.rights = rights;
    this.expiresAtMs = expiresAtMs;
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
}

/** Runs at most `max` pieces of work at a time; further ones wait in order, as many as the caller allows. */
class ConcurrencyLimit {
  readonly #max: number;
  readonly #waiting: (() => void)[] = [];
  #running = 0;

  constructor(max: number) {
    this.#max = max;
  }

  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.#running >= this.#max) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    else this.#running += 1;
    try {
      return await work();
    } finally {
      // A waiting piece takes over the place of this one.
      const next = this.#waiting.shift();
      if (next === undefined) this.#running -= 1;
      else next();
    }
  }
}

function hashOf(text: string): string {
  return createHash("sha256").update(text).digest("base64");
}

function unauthenticated(message: string): TokenProblem {
  return { code: Code.Unauthenticated, message };
}

function unavailable(message: string): TokenProblem {
  return { code: Code.Unavailable, message };
}

const expired = unauthenticated("the token has expired");

const standardReviewMs = 300_000;
const standardRetryMs = 10_000;

/** Difference of the clocks of API server and watcher that is tolerated, in milliseconds. */
const toleranceMs = 30_000;

/** Maximum length of a token. Tokens of an API server have one to two kilobytes. */
const maxTokenBytes = 8_192;

/** Maximum duration of a review, in milliseconds. */
const reviewLimitMs = 5_000;

/** Time after a failed first review during which others fail for the same reason, in milliseconds. */
const failedMs = 1_000;

/** Reviews in a minute: refused ones of an address, and accepted ones of an identity. */
const [maxRefused, maxAccepted] = [20, 60];
