import type { CryptoKey } from "jose";
import { exportJWK, generateKeyPair, SignJWT } from "jose";
import type { Review, TokenAuthority } from "../identity/token/token-authority.ts";

/** Claims of a token of {@link TokenIssuer}, with defaults of a backend's token on node n1. */
export interface TestClaims {
  readonly account?: string | undefined;
  /** Name of the node; "" for a token without one. Default "n1". */
  readonly node?: string | undefined;
  readonly issuer?: string | undefined;
  readonly audience?: string | undefined;
  /** Seconds from now. Default 3 600. */
  readonly expiresIn?: number | undefined;
}

/**
 * Issuer of ServiceAccount tokens, with the keys and reviews of an API server that a test can take away. The tests of
 * tokens, in `identity/token` and `stream/serve`, create one; separate, because all of them share it.
 */
export class TokenIssuer implements TokenAuthority {
  readonly issuer = "https://kubernetes.default.svc";
  /** Number of reads of the keys. */
  reads = 0;
  /** Duration of a review, in milliseconds. */
  reviewDelayMs = 0;

  reviews = 0;
  /** Result of reviews. */
  answer: Review = { kind: "valid" };
  isDown = false;
  #pair: { readonly privateKey: CryptoKey; readonly publicKey: CryptoKey; readonly kid: string } | undefined;
  readonly #published: object[] = [];

  /** Makes an issuer with a key that it publishes. */
  static async make(): Promise<TokenIssuer> {
    const issuer = new TokenIssuer();
    await issuer.newKey();
    return issuer;
  }

  /** Signs with another key from now on, and publishes it if `isPublished`. */
  async newKey({ isPublished = true, kid = `key-${this.#published.length}` } = {}): Promise<void> {
    const { privateKey, publicKey } = await generateKeyPair("ES256", { extractable: true });
    this.#pair = { privateKey, publicKey, kid };
    if (isPublished) this.#published.push({ ...(await exportJWK(publicKey)), kid, alg: "ES256", use: "sig" });
  }

  async readKeys() {
    this.reads += 1;
    if (this.isDown) throw new Error("connect ECONNREFUSED");
    return { issuers: [this.issuer], keys: { keys: this.#published } };
  }

  review = async (): Promise<Review> => {
    this.reviews += 1;
    if (this.reviewDelayMs > 0) await new Promise((resolve) => setTimeout(resolve, this.reviewDelayMs));
    return this.isDown ? { kind: "unknown", reason: "connect ECONNREFUSED" } : this.answer;
  };

  async sign({ account = "kube-system:kpng-node", node = "n1", ...claims }: TestClaims = {}): Promise<string> {
    if (this.#pair === undefined) throw new Error("make() was not called");
    const now = Math.floor(Date.now() / 1_000);
    return new SignJWT({ "kubernetes.io": node === "" ? {} : { node: { name: node, uid: "1" } } })
      .setProtectedHeader({ alg: "ES256", kid: this.#pair.kid })
      .setSubject(`system:serviceaccount:${account}`)
      .setIssuer(claims.issuer ?? this.issuer)
      .setAudience(claims.audience ?? "kpng")
      .setIssuedAt(now)
      .setNotBefore(now)
      .setExpirationTime(now + (claims.expiresIn ?? 3_600))
      .sign(this.#pair.privateKey);
  }
}
