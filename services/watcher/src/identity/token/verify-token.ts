import { Code } from "@connectrpc/connect";
import { isRecord } from "@kpng/model/is-record.ts";
import { reasonOf } from "@kpng/process/log.ts";
import { errors, type JWTPayload, jwtVerify } from "jose";
import type { TokenProblem } from "../rights.ts";
import type { KeyLookup, SigningKeys } from "./signing-keys.ts";
import type { TokenClaims } from "./token-rights.ts";

/**
 * Verifies signature, algorithm, issuer, audience and times of a ServiceAccount token, and returns its claims.
 * `TokenChecker` calls it before it has the token reviewed. Separate, because `TokenChecker` loads this file, and with
 * it the library jose, only when a client sends a token.
 *
 * *Cost:* about 0.1 ms of CPU, most of it in the thread pool.
 */
export async function verifyToken(
  token: string,
  { audience, nowMs }: { readonly audience: string; readonly nowMs: number },
  keys: SigningKeys,
): Promise<
  | { readonly kind: "verified"; readonly claims: TokenClaims }
  | { readonly kind: "refused"; readonly problem: TokenProblem }
> {
  // Texts that differ only in unused bits are the same token to jose, but each would be reviewed and kept by itself.
  const isCanonical = (part: string): boolean => Buffer.from(part, "base64url").toString("base64url") === part;
  if (!token.split(".").every(isCanonical)) return refused("the token is malformed");
  let lookup: KeyLookup;
  try {
    lookup = await keys.current();
  } catch (error) {
    const message = `the token cannot be verified, because the keys of the cluster cannot be read: ${reasonOf(error)}`;
    return { kind: "refused", problem: { code: Code.Unavailable, message } };
  }
  const verify = async ({ issuers, find }: KeyLookup): Promise<JWTPayload> => {
    const { payload } = await jwtVerify(token, find, {
      audience,
      issuer: [...issuers],
      algorithms: [...algorithms],
      requiredClaims: ["exp", "sub"],
      clockTolerance: toleranceMs / 1_000,
      currentDate: new Date(nowMs),
    });
    return payload;
  };
  try {
    const payload = await verify(lookup).catch(async (error: unknown) => {
      if (!(error instanceof errors.JWKSNoMatchingKey)) throw error;
      const renewed = await keys.renewed();
      if (renewed === lookup) throw error;
      return verify(renewed);
    });
    const claims = claimsOf(payload);
    if (claims === undefined) return refused("the token is not a ServiceAccount's");
    return { kind: "verified", claims };
  } catch (error) {
    return refused(messageOf(error));
  }
}

function refused(message: string): { readonly kind: "refused"; readonly problem: TokenProblem } {
  return { kind: "refused", problem: { code: Code.Unauthenticated, message } };
}

/** Difference of the clocks of API server and watcher that is tolerated, in milliseconds. */
const toleranceMs = 30_000;

/**
 * The algorithms with which an API server signs, by the type of its key. "none" and those with a shared secret must
 * never be accepted: then anyone could sign.
 *
 * Source: kubernetes/pkg/serviceaccount/jwt.go.
 */
const algorithms = ["RS256", "ES256", "ES384", "ES512"] as const;

/** Returns the claims of a ServiceAccount token; undefined if its subject is not a ServiceAccount. */
function claimsOf({ sub = "", exp = 0, ...payload }: JWTPayload): TokenClaims | undefined {
  const account = /^system:serviceaccount:([^:/]+):([^:/]+)$/.exec(sub);
  if (account === null) return undefined;
  const bound = payload["kubernetes.io"];
  const node = isRecord(bound) && isRecord(bound.node) ? bound.node.name : undefined;
  return {
    account: `${account[1]}/${account[2]}`,
    nodeName: typeof node === "string" && node !== "" ? node : undefined,
    expiresAtMs: exp * 1_000 + toleranceMs,
  };
}

function messageOf(error: unknown): string {
  if (error instanceof errors.JWTExpired) return "the token has expired";
  if (error instanceof errors.JWTClaimValidationFailed)
    return `the token's claim "${error.claim}" is not the expected one`;
  if (error instanceof errors.JOSEAlgNotAllowed) return "the token's algorithm is not allowed";
  if (error instanceof errors.JWKSNoMatchingKey) return "the token is signed with a key that is not the cluster's";
  if (error instanceof errors.JWSSignatureVerificationFailed) return "the token's signature is invalid";
  return "the token is malformed";
}
