import { createHash } from "node:crypto";
import { Code } from "@connectrpc/connect";
import type { Log } from "@kpng/process/log.ts";
import { RepeatLimit } from "@kpng/process/repeat-limit.ts";
import { waitMs } from "@kpng/process/wait.ts";
import { Registry } from "prom-client";
import { hasAnyRight, type TokenProblem } from "../rights.ts";
import { ConcurrencyLimit } from "./concurrency-limit.ts";
import { KnownToken } from "./known-token.ts";
import { SigningKeys } from "./signing-keys.ts";
import type { TokenAuthority } from "./token-authority.ts";
import { makeTokenMetrics, type TokenMetrics } from "./token-metrics.ts";
import { rightsOfToken, type TokenAccounts } from "./token-rights.ts";

/** Result of a check: a token that is accepted, or why it is not. */
export type CheckedToken =
  | { readonly kind: "accepted"; readonly token: KnownToken }
  | { readonly kind: "refused"; readonly problem: TokenProblem };

/** Options of {@link TokenChecker}. */
export interface TokenCheckerOptions {
  readonly authority: TokenAuthority;
  /** Audience that tokens must have (`--token-audience`). */
  readonly audience: string;
  readonly accounts: TokenAccounts;
  readonly log: Log;
  /** Default: not exposed. */
  readonly metrics?: TokenMetrics | undefined;
  /** Time after which a token is reviewed again, in milliseconds; 0 is never. Default 300 000. */
  readonly reviewMs?: number | undefined;
  /** Time that a call waits for the first review of its token, in milliseconds. Default 5 000. */
  readonly reviewWaitMs?: number | undefined;
  /** Time after a failed review until the next, in milliseconds. Default 10 000. */
  readonly retryMs?: number | undefined;
  /** Maximum memory of the known tokens, in bytes. Default 64 MiB. */
  readonly maxBytes?: number | undefined;
  /** Unix time in milliseconds. Default Date.now. */
  readonly unixMs?: (() => number) | undefined;
}

/**
 * Checks the tokens that clients send with their calls: signature, issuer, audience and times once for each token; then
 * the API server reviews it, and again every `reviewMs` while calls use it. So a token ends its calls about
 * `reviewMs` after its pod was deleted.
 *
 * If the API server does not answer, a token with a valid signature is accepted, and reviewed as soon as possible: a
 * node that starts meanwhile needs its view. A token that was refused stays refused for a minute.
 *
 * *Bound:* `maxBytes` for known tokens, which are kept by their hash. Only tokens with a valid signature are kept, and
 * those with calls in progress are never dropped. 32 verifications and 16 reviews run at a time; at most 10 000 calls
 * wait for a verification.
 *
 * *Cost:* a hash for each call; nothing for each message.
 *
 * The sink `to-api` creates one (`makeTokenChecker`), `serve` starts and stops it, and `admitCall` asks it for each
 * call with a token. Separate from them, because known tokens outlive the calls.
 */
export class TokenChecker {
  readonly #options: TokenCheckerOptions;
  readonly #keys: SigningKeys;
  readonly #metrics: TokenMetrics;
  readonly #known = new Map<string, KnownToken>();
  /** Checks in progress, by the hash of the token. */
  readonly #checking = new Map<string, Promise<CheckedToken>>();
  readonly #verifications = new ConcurrencyLimit(32);
  readonly #reviews = new ConcurrencyLimit(16);
  readonly #repeats = new RepeatLimit({ burst: 3 });
  readonly #stop = new AbortController();
  #byteCount = 0;
  #sweeping: NodeJS.Timeout | undefined;

  constructor(options: TokenCheckerOptions) {
    this.#options = options;
    this.#keys = new SigningKeys(options.authority, monotonicMs);
    this.#metrics = options.metrics ?? makeTokenMetrics(new Registry());
  }

  /** Starts to end expired tokens and to repeat reviews. Does not keep the process alive. */
  start(): void {
    const { retryMs = standardRetryMs } = this.#options;
    const intervalMs = Math.max(5, Math.min(1_000, this.#reviewMs / 4, retryMs / 4));
    this.#sweeping = setInterval(() => this.#sweep(), intervalMs).unref();
  }

  /** Ends reviews in progress. */
  stop(): void {
    clearInterval(this.#sweeping);
    this.#stop.abort();
  }

  /** Checks a token. Returns the result at once if the token is known and needs no review. Never rejects. */
  check(text: string): CheckedToken | Promise<CheckedToken> {
    const result = this.#check(text);
    if (result instanceof Promise) return result.then((checked) => this.#count(checked, "accepted"));
    return this.#count(result, "known");
  }

  #count(checked: CheckedToken, accepted: "known" | "accepted"): CheckedToken {
    this.#metrics.checks.inc({ result: checked.kind === "accepted" ? accepted : "refused" });
    return checked;
  }

  #check(text: string): CheckedToken | Promise<CheckedToken> {
    if (text.length > maxTokenBytes) return refused(Code.Unauthenticated, "the token is too long");
    const key = createHash("sha256").update(text).digest("base64");
    const known = this.#known.get(key);
    if (known !== undefined && this.#keep(key, known)) {
      const isDue = this.#reviewOf(known) !== undefined && known.reviewAtMs <= monotonicMs();
      return isDue && known.problem === undefined ? this.#reviewed(known) : resultOf(known);
    }
    const running = this.#checking.get(key);
    if (running !== undefined) return running;
    if (this.#verifications.waitingCount >= maxWaiting) {
      return refused(Code.Unavailable, "too many tokens wait to be verified");
    }
    const checking = this.#verifications
      .run(() => this.#verify(key, text))
      .then((result) => (result instanceof KnownToken ? this.#reviewed(result) : result))
      .then((result) => this.#logRefusal(result))
      .finally(() => this.#checking.delete(key));
    this.#checking.set(key, checking);
    return checking;
  }

  get #reviewMs(): number {
    const { reviewMs = standardReviewMs } = this.#options;
    return reviewMs === 0 ? Number.POSITIVE_INFINITY : reviewMs;
  }

  /**
   * Returns the function that reviews a token; undefined if it is not reviewed. Every pod has a valid token, and one of
   * an account without rights must not cause requests to the API server.
   */
  #reviewOf({ rights }: KnownToken): TokenAuthority["review"] {
    return hasAnyRight(rights) ? this.#options.authority.review : undefined;
  }

  async #verify(key: string, text: string): Promise<KnownToken | CheckedToken> {
    const { audience, accounts } = this.#options;
    const { verifyToken } = await import("./verify-token.ts");
    const result = await verifyToken(text, { audience, nowMs: this.#unixMs() }, this.#keys);
    if (result.kind === "refused") return result;
    const token = new KnownToken(text, rightsOfToken(result.claims, accounts), result.claims.expiresAtMs);
    if (!this.#makeRoom(token.byteCount)) return refused(Code.Unavailable, "too many tokens are in use");
    this.#known.set(key, token);
    this.#byteCount += token.byteCount;
    return token;
  }

  /** Waits for the review of a token, if there is one, but not longer than `reviewWaitMs`. */
  async #reviewed(token: KnownToken): Promise<CheckedToken> {
    const { reviewWaitMs = 5_000 } = this.#options;
    const over = new AbortController();
    await Promise.race([this.#review(token), waitMs(reviewWaitMs, over.signal)]);
    over.abort();
    return resultOf(token);
  }

  /** Reviews a token, and refuses it if the API server does. Calls at the same time share one review. */
  #review(token: KnownToken): Promise<void> {
    const review = this.#reviewOf(token);
    if (review === undefined) return Promise.resolve();
    token.reviewing ??= this.#reviews
      .run(() => review(token.text, AbortSignal.any([this.#stop.signal, AbortSignal.timeout(reviewLimitMs)])))
      .then((result) => {
        this.#metrics.reviews.inc({ result: result.kind });
        const { retryMs = standardRetryMs } = this.#options;
        // Spread, so that tokens that came together are reviewed at different times.
        const nextMs = this.#reviewMs * (0.8 + 0.2 * Math.random());
        token.reviewAtMs = monotonicMs() + (result.kind === "valid" ? nextMs : retryMs);
        if (result.kind === "valid") token.isReviewed = true;
        else if (result.kind === "invalid") this.#refuse(token, result.reason);
        else this.#reviewFailed(token, result);
      })
      .finally(() => {
        token.reviewing = undefined;
      });
    return token.reviewing;
  }

  #refuse(token: KnownToken, reason: string): void {
    token.refuse({ code: Code.Unauthenticated, message: `the API server refused the token: ${reason}` });
    token.reviewAtMs = monotonicMs() + refusedMs;
    if (token.calls === 0) return;
    const { identity } = token.rights;
    this.#options.log.info("token revoked: its calls end", { identity, calls: token.calls, reason });
  }

  #reviewFailed(
    token: KnownToken,
    { kind, reason }: { readonly kind: "forbidden" | "unknown"; readonly reason: string },
  ) {
    this.#repeats.add(kind, () => {
      const effect =
        kind === "forbidden" ? "new tokens are refused" : "tokens with a valid signature are accepted meanwhile";
      this.#options.log.error("tokens cannot be reviewed", { reason, effect });
    });
    // A missing right is a mistake in the installation, which would stay unnoticed if tokens were accepted.
    if (kind !== "forbidden" || token.isReviewed || token.calls > 0) return;
    token.refuse({ code: Code.Unavailable, message: `the watcher may not review tokens: ${reason}` });
  }

  #logRefusal(result: CheckedToken): CheckedToken {
    if (result.kind === "refused") {
      const { message: reason } = result.problem;
      this.#repeats.add(reason, () => this.#options.log.info("token refused", { reason }));
    }
    return result;
  }

  #sweep(): void {
    const nowMs = monotonicMs();
    for (const [key, token] of this.#known) {
      if (!this.#keep(key, token) || token.reviewAtMs > nowMs) continue;
      // A call waits for this review, and will use the token.
      if (token.reviewing !== undefined) continue;
      if (token.calls === 0) this.#forget(key, token);
      else if (token.problem === undefined) void this.#review(token);
    }
  }

  /** Returns true if the token is still worth knowing; otherwise forgets it, and ends its calls if it has expired. */
  #keep(key: string, token: KnownToken): boolean {
    if (token.expiresAtMs <= this.#unixMs()) token.expire();
    else if (token.problem === undefined || token.reviewAtMs > monotonicMs()) return true;
    this.#forget(key, token);
    return false;
  }

  #makeRoom(byteCount: number): boolean {
    const { maxBytes = 64 << 20 } = this.#options;
    for (const [key, token] of this.#known) {
      if (this.#byteCount + byteCount <= maxBytes) return true;
      if (token.calls === 0 && token.reviewing === undefined) this.#forget(key, token);
    }
    return this.#byteCount + byteCount <= maxBytes;
  }

  #forget(key: string, token: KnownToken): void {
    if (this.#known.delete(key)) this.#byteCount -= token.byteCount;
  }

  #unixMs(): number {
    return (this.#options.unixMs ?? Date.now)();
  }
}

function monotonicMs(): number {
  return performance.now();
}

function resultOf(token: KnownToken): CheckedToken {
  const { problem } = token;
  return problem === undefined ? { kind: "accepted", token } : { kind: "refused", problem };
}

function refused(code: TokenProblem["code"], message: string): CheckedToken {
  return { kind: "refused", problem: { code, message } };
}

const standardReviewMs = 300_000;
const standardRetryMs = 10_000;

/** Maximum length of a token. Tokens of an API server have one to two kilobytes. */
const maxTokenBytes = 8_192;

/** Maximum number of calls that wait for a verification. */
const maxWaiting = 10_000;

/** Maximum duration of a review. */
const reviewLimitMs = 10_000;

/** Time for which a refused token stays refused without another review. */
const refusedMs = 60_000;
