import type { JSONWebKeySet } from "jose";

/**
 * The issuer of the tokens, as `TokenChecker` needs it. Separate, because there are two implementations:
 * `kubeAuthority` asks the API server, and `fileAuthority` reads a file.
 */
export interface TokenAuthority {
  /** Reads the keys that sign tokens. Rejects if they cannot be read. */
  readKeys(signal: AbortSignal): Promise<IssuerKeys>;
  /** Asks the API server whether the pod and account of the token still exist. Undefined if there is no API server. */
  readonly review: ((token: string, signal: AbortSignal) => Promise<Review>) | undefined;
}

/** Issuers whose tokens are accepted, and their public keys. */
export interface IssuerKeys {
  readonly issuers: readonly string[];
  readonly keys: JSONWebKeySet;
}

/** Result of a review of a token. */
export type Review =
  | { readonly kind: "valid" }
  /** The API server does not accept the token (any more). */
  | { readonly kind: "invalid"; readonly reason: string }
  /** The watcher's own account may not review tokens. */
  | { readonly kind: "forbidden"; readonly reason: string }
  /** The API server does not answer, or cannot say. */
  | { readonly kind: "unknown"; readonly reason: string };
