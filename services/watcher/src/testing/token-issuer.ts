import { claimsOf, type Review } from "../identity/token-review.ts";

/** The accounts with a right, in tests. */
export const accounts = {
  node: new Set(["kube-system/kpng-node"]),
  state: new Set(["kube-system/kpng-relay"]),
  inspection: new Set(["ops/alice"]),
};

/** Claims of a token of {@link TokenIssuer}, with defaults of a backend's token on node n1. */
interface TestClaims {
  readonly account?: string | undefined;
  /** Name of the node; "" for a token without one. Default "n1". */
  readonly node?: string | undefined;
  readonly audience?: string | undefined;
  /** Seconds from now. Default 3 600. */
  readonly expiresIn?: number | undefined;
}

/**
 * Issuer of ServiceAccount tokens, and the API server that reviews them, which a test can take away. It accepts the
 * tokens that it issued.
 */
export class TokenIssuer {
  reviews = 0;
  /** Result of reviews instead of that of the issuer. */
  answer: Exclude<Review, { kind: "valid" }> | undefined;
  isDown = false;
  readonly #issued = new Set<string>();

  review = async (token: string): Promise<Review> => {
    this.reviews += 1;
    if (this.isDown) return { kind: "unknown", reason: "connect ECONNREFUSED" };
    const claims = this.#issued.has(token) ? claimsOf(token) : undefined;
    if (claims === undefined) return { kind: "invalid", reason: "invalid signature" };
    return this.answer ?? { kind: "valid", account: claims.account, nodeName: claims.nodeName };
  };

  issue(claims: TestClaims = {}): string {
    const token = forge(claims);
    this.#issued.add(token);
    return token;
  }
}

/** Returns a token that nobody issued. */
export function forge({ account = "kube-system:kpng-node", node = "n1", ...claims }: TestClaims = {}): string {
  const payload = {
    sub: `system:serviceaccount:${account}`,
    aud: [claims.audience ?? "kpng"],
    exp: Math.floor(Date.now() / 1_000) + (claims.expiresIn ?? 3_600),
    "kubernetes.io": node === "" ? {} : { node: { name: node, uid: "1" } },
  };
  return ["{}", JSON.stringify(payload), "signature"].map((part) => Buffer.from(part).toString("base64url")).join(".");
}
