import type { JWTVerifyGetKey } from "jose";
import type { TokenAuthority } from "./token-authority.ts";

/** Keys in a form in which jose looks them up by key ID, and the issuers whose tokens they verify. */
export interface KeyLookup {
  readonly issuers: readonly string[];
  readonly find: JWTVerifyGetKey;
}

/**
 * The signing keys of a cluster, read when they are first needed and kept.
 *
 * They are read again when they are old, and when a token names a key that is not among them, but at most once per
 * `retryMs`: any client can send a token with a new key ID. If they cannot be read again, the last ones are used.
 *
 * `TokenChecker` creates one; `verifyToken` reads the keys. Separate, because the keys outlive each verification.
 */
export class SigningKeys {
  readonly #authority: Pick<TokenAuthority, "readKeys">;
  readonly #nowMs: () => number;
  #known: KeyLookup | undefined;
  #reading: Promise<KeyLookup> | undefined;
  /** Error of the last failed read. Matters only until the first successful one. */
  #failure: unknown;
  /** Start of the last read. */
  #readAtMs = Number.NEGATIVE_INFINITY;

  /** `nowMs` is a monotonic clock. */
  constructor(authority: Pick<TokenAuthority, "readKeys">, nowMs: () => number) {
    this.#authority = authority;
    this.#nowMs = nowMs;
  }

  /** Returns the keys. Rejects if they were never read, and cannot be read now. */
  async current(): Promise<KeyLookup> {
    const ageMs = this.#nowMs() - this.#readAtMs;
    if (this.#known !== undefined && ageMs < maxAgeMs) return this.#known;
    // Any client can send a token, which must not cause a request to an API server that has just failed.
    if (this.#failure !== undefined && ageMs < failedRetryMs) throw this.#failure;
    return this.#read();
  }

  /** Reads the keys again and returns them; without a read, if the last one was less than `retryMs` ago. */
  async renewed(): Promise<KeyLookup> {
    if (this.#nowMs() - this.#readAtMs < retryMs) return this.current();
    return this.#read();
  }

  async #read(): Promise<KeyLookup> {
    this.#reading ??= this.#start().finally(() => {
      this.#reading = undefined;
    });
    try {
      return await this.#reading;
    } catch (error) {
      this.#failure = error;
      if (this.#known === undefined) throw error;
      return this.#known;
    }
  }

  async #start(): Promise<KeyLookup> {
    this.#readAtMs = this.#nowMs();
    const { issuers, keys } = await this.#authority.readKeys(AbortSignal.timeout(readLimitMs));
    // Loaded on demand, as few watchers and no query need it: it takes 0.1 s and 10 MB.
    const { createLocalJWKSet } = await import("jose");
    this.#known = { issuers, find: createLocalJWKSet(keys) };
    return this.#known;
  }
}

/** Age at which keys are read again, so that a key that the cluster has removed loses its trust. */
const maxAgeMs = 300_000;

/** Least time between two reads because of an unknown key ID. */
const retryMs = 10_000;

/** Least time between a failed read and the next one, while no keys are known. */
const failedRetryMs = 1_000;

/** Maximum duration of a read. */
const readLimitMs = 5_000;
