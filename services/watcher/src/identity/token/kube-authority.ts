import { isRecord } from "@kpng/model/is-record.ts";
import { reasonOf } from "@kpng/process/log.ts";
import type { JSONWebKeySet } from "jose";
import type { KubeConnection, KubeResponse } from "../../source/kube/client/connection.ts";
import type { Review, TokenAuthority } from "./token-authority.ts";

/**
 * Returns the API server as the authority for tokens: issuer and keys from its discovery documents, reviews by
 * TokenReview. The watcher's account needs the rights of deploy/kubernetes/watcher/rbac.yaml.
 *
 * The keys are read from the API server itself, not from the URL in the discovery document: that host may be outside
 * the cluster, and the watcher trusts the API server already.
 *
 * `makeTokenChecker` of the command line calls it, or `fileAuthority` for a watcher without an API server.
 */
export function kubeAuthority({ connect, audience, moreIssuers = [] }: KubeAuthorityOptions): TokenAuthority {
  let connecting: Promise<KubeConnection> | undefined;
  const connected = (): Promise<KubeConnection> => {
    connecting ??= connect().catch((error: unknown) => {
      connecting = undefined;
      throw error;
    });
    return connecting;
  };
  const read = async (path: string, signal: AbortSignal): Promise<Record<string, unknown>> => {
    const { status, body } = await readJson(await (await connected()).get(path, signal));
    if (status !== 200 || !isRecord(body)) throw new Error(`cannot get ${path} (${status}): ${messageOf(body)}`);
    return body;
  };
  return {
    async readKeys(signal) {
      const [discovery, keySet] = await Promise.all([
        read("/.well-known/openid-configuration", signal),
        read("/openid/v1/jwks", signal),
      ]);
      if (typeof discovery.issuer !== "string" || !isKeySet(keySet)) {
        throw new Error("the API server's discovery documents have no issuer or no keys");
      }
      return { issuers: [discovery.issuer, ...moreIssuers], keys: keySet };
    },
    review: (token, signal) => review(connected, token, audience, signal),
  };
}

/** Options of {@link kubeAuthority}. */
export interface KubeAuthorityOptions {
  /** Makes the connection; called when it is first needed. */
  readonly connect: () => Promise<KubeConnection>;
  /** Audience that the API server must confirm. */
  readonly audience: string;
  /** Issuers besides the one that the API server names, for example the former one after a change. */
  readonly moreIssuers?: readonly string[] | undefined;
}

async function review(
  connected: () => Promise<KubeConnection>,
  token: string,
  audience: string,
  signal: AbortSignal,
): Promise<Review> {
  const request = {
    apiVersion: "authentication.k8s.io/v1",
    kind: "TokenReview",
    spec: { token, audiences: [audience] },
  };
  try {
    const connection = await connected();
    const response = await connection.post("/apis/authentication.k8s.io/v1/tokenreviews", request, signal);
    const { status, body } = await readJson(response);
    if (status === 403) return { kind: "forbidden", reason: messageOf(body) };
    const result = isRecord(body) && isRecord(body.status) ? body.status : undefined;
    if (status >= 300 || result === undefined)
      return { kind: "unknown", reason: `status ${status}: ${messageOf(body)}` };
    if (result.authenticated !== true) {
      return { kind: "invalid", reason: typeof result.error === "string" ? result.error : "not authenticated" };
    }
    // A server without audiences would accept a token for any audience, so it must confirm ours.
    const isForUs = Array.isArray(result.audiences) && result.audiences.includes(audience);
    return isForUs ? { kind: "valid" } : { kind: "invalid", reason: "the API server did not confirm the audience" };
  } catch (error) {
    return { kind: "unknown", reason: reasonOf(error) };
  }
}

/** Maximum size of a response, in bytes. */
const maxResponseBytes = 1 << 20;

async function readJson({ status, body }: KubeResponse): Promise<{ readonly status: number; readonly body: unknown }> {
  const chunks: Buffer[] = [];
  let byteCount = 0;
  for await (const chunk of body) {
    byteCount += chunk.length;
    if (byteCount > maxResponseBytes) throw new Error(`the response exceeds ${maxResponseBytes} bytes`);
    chunks.push(chunk);
  }
  const text = Buffer.concat(chunks).toString("utf8");
  try {
    return { status, body: JSON.parse(text) };
  } catch {
    // A proxy in between answers with a text of its own.
    return { status, body: undefined };
  }
}

function messageOf(body: unknown): string {
  return isRecord(body) && typeof body.message === "string" ? body.message : "no reason given";
}

/** Returns true if a value has the shape of a JSON Web Key Set. jose checks the keys themselves. */
export function isKeySet(value: unknown): value is JSONWebKeySet {
  return isRecord(value) && Array.isArray(value.keys) && value.keys.every((key) => isRecord(key) && "kty" in key);
}
