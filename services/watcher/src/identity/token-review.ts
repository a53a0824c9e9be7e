import { isRecord } from "@kpng/model/narrowing.ts";
import { reasonOf } from "@kpng/process/log.ts";
import { type KubeConnection, parseJson, readText } from "@kpng/source/kube/connection.ts";
import type { Rights } from "./rights.ts";

/** Asks the API server whether a token is valid, and whose. Never rejects. */
export type ReviewToken = (token: string, signal: AbortSignal) => Promise<Review>;

export type Review =
  | ({ readonly kind: "valid" } & TokenUser)
  /** The API server does not accept the token, or no longer accepts it. */
  | { readonly kind: "invalid"; readonly reason: string }
  /** The watcher's own account is not allowed to review tokens. */
  | { readonly kind: "forbidden"; readonly reason: string }
  /** The API server does not answer, or cannot decide whether the token is valid. */
  | { readonly kind: "unknown"; readonly reason: string };

interface TokenUser {
  /** ServiceAccount. *Shape:* `kube-system/kpng-node`. */
  readonly account: string;
  /** Name of the pod's node; undefined for a token that is not bound to a pod on a node. */
  readonly nodeName: string | undefined;
}

/** ServiceAccounts with a right, by right. *Shape:* `namespace/name`. */
export interface TokenAccounts {
  /** Accounts of backends, which may read the view of the node that the token names. */
  readonly node: ReadonlySet<string>;
  /** Accounts of relays, which may read the state of the whole cluster. */
  readonly state: ReadonlySet<string>;
  /** Accounts of people and tools, which may use the whole inspect API. */
  readonly inspection: ReadonlySet<string>;
}

/** Returns the rights of a reviewed token. An account may be in several lists. Pure. */
export function rightsOfToken({ account, nodeName }: TokenUser, accounts: TokenAccounts): Rights {
  const hasState = accounts.state.has(account);
  const nodeOfToken = nodeName !== undefined && accounts.node.has(account) ? [nodeName] : [];
  return {
    nodes: hasState ? "all" : new Set(nodeOfToken),
    hasState,
    hasInspection: accounts.inspection.has(account),
    identity: `ServiceAccount ${account}${nodeName === undefined ? "" : ` on node "${nodeName}"`}`,
  };
}

/** Content of a token. Until a review confirms it, anybody may have written it. */
interface TokenClaims extends TokenUser {
  readonly audiences: readonly unknown[];
  /** Unix time in milliseconds. */
  readonly expiresAtMs: number;
}

/** Reads the claims of a token; undefined if it is not a ServiceAccount token. Pure. */
export function claimsOf(token: string): TokenClaims | undefined {
  const payload = parseJson(Buffer.from(token.split(".")[1] ?? "", "base64url").toString("utf8"));
  if (!isRecord(payload) || typeof payload.exp !== "number") return undefined;
  const account = accountOf(payload.sub);
  if (account === undefined) return undefined;
  const bound = payload["kubernetes.io"];
  const nodeName = textOf(isRecord(bound) && isRecord(bound.node) ? bound.node.name : undefined);
  return { account, nodeName, audiences: [payload.aud].flat(), expiresAtMs: payload.exp * 1_000 };
}

function accountOf(user: unknown): string | undefined {
  const match = /^system:serviceaccount:([^:/]+):([^:/]+)$/.exec(typeof user === "string" ? user : "");
  return match === null ? undefined : `${match[1]}/${match[2]}`;
}

/** Returns a function that creates TokenReviews for `audience`; `connect` is called for the first review. */
export function kubeReviews(connect: () => Promise<KubeConnection>, audience: string): ReviewToken {
  let connecting: Promise<KubeConnection> | undefined;
  return async (token, signal) => {
    try {
      connecting ??= connect();
      const connection = await connecting.catch((error: unknown) => {
        connecting = undefined;
        throw error;
      });
      const request = {
        apiVersion: "authentication.k8s.io/v1",
        kind: "TokenReview",
        spec: { token, audiences: [audience] },
      };
      const path = "/apis/authentication.k8s.io/v1/tokenreviews";
      const { status, body } = await connection.post(path, request, signal);
      // The body is not JSON if a proxy in between answers with its own message.
      return reviewOf(status, parseJson(await readText(body)), audience);
    } catch (error) {
      return { kind: "unknown", reason: reasonOf(error) };
    }
  };
}

function reviewOf(status: number, body: unknown, audience: string): Review {
  const message = isRecord(body) && typeof body.message === "string" ? body.message : "no reason given";
  if (status === 403) return { kind: "forbidden", reason: message };
  const result = isRecord(body) && isRecord(body.status) ? body.status : undefined;
  if (status >= 300 || result === undefined) return { kind: "unknown", reason: `status ${status}: ${message}` };
  if (result.authenticated !== true) {
    return { kind: "invalid", reason: typeof result.error === "string" ? result.error : "not authenticated" };
  }
  // An authenticator that ignores audiences also accepts tokens for other audiences, but then does not confirm ours.
  const isForUs = Array.isArray(result.audiences) && result.audiences.includes(audience);
  if (!isForUs) return { kind: "invalid", reason: "the API server did not confirm the audience" };
  const user = isRecord(result.user) ? result.user : {};
  const account = accountOf(user.username);
  if (account === undefined) return { kind: "invalid", reason: "not the token of a ServiceAccount" };
  const nodes = isRecord(user.extra) ? user.extra["authentication.kubernetes.io/node-name"] : undefined;
  return { kind: "valid", account, nodeName: textOf(Array.isArray(nodes) ? nodes[0] : undefined) };
}

function textOf(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}
