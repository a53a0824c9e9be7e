import { isRecord } from "@kpng/model/narrowing.ts";
import { type ProbeAnswer, probeServer } from "../probe-server.ts";
import type { CurrencySink } from "../source.ts";
import type { ChangeQueue } from "./change-queue.ts";
import {
  describeFailure,
  type KubeConnection,
  openResponse,
  type RequestFailure,
  type Resource,
} from "./connection.ts";
import { currentResourceVersion } from "./list.ts";
import { isOlder, type Reflector } from "./reflector.ts";

interface FollowServerOptions {
  readonly connection: KubeConnection;
  readonly currency: CurrencySink;
  readonly queue: ChangeQueue;
  readonly services: Resource;
  /** Reflectors of the kinds that every API server has, that of the Services first. */
  readonly reflectors: readonly Reflector[];
  /** Time without an answer of the API server after which the source is stale, in milliseconds. Default 15 000. */
  readonly staleAfterMs?: number | undefined;
}

/**
 * Reports when the API server does not answer, and lists everything again when it answers after that, when its versions
 * went back, or when it serves another cluster. The source is stale until these lists have ended and no kind holds
 * deletions: before that, its objects are those of before a restore, or a mixture. Runs until `signal` aborts.
 *
 * After a silence, watches cannot simply go on: etcd may have been restored meanwhile, and have counted beyond the
 * version at which they stopped.
 */
export async function followServer(options: FollowServerOptions, signal: AbortSignal): Promise<void> {
  const { connection, currency, queue, reflectors, staleAfterMs } = options;
  let wasSilent = false;
  const ask = async (limitMs: number): Promise<ProbeAnswer> => {
    const request = { ...options.services, labelSelector: undefined, silenceMs: limitMs };
    // From before the request: events can overtake the answer.
    const known = reflectors[0]?.resourceVersion ?? "";
    const end = await currentResourceVersion(connection, request, signal);
    // The first lists are reported by the readiness of the process.
    if (reflectors.some(({ isListed }) => !isListed)) return { kind: "current" };
    if (end.kind !== "listed") return { kind: "silent", reason: describeFailure(end) };
    const wentBack = isOlder(end.resourceVersion, known);
    const isOther = await identify({ connection, queue }, limitMs, signal);
    if (wentBack || isOther || wasSilent) {
      for (const reflector of reflectors) reflector.requestList(wasSilent ? "stale" : "went-back");
      wasSilent = false;
    }
    const failure = reflectors.map((reflector) => reflector.failure).find((one) => one !== undefined);
    if (failure !== undefined) return { kind: "silent", reason: describeFailure(failure) };
    const isCurrent = reflectors.every((reflector) => reflector.isCurrent);
    return isCurrent ? { kind: "current" } : { kind: "behind", reason: "the API server is listed again" };
  };
  const onSilent = (): void => {
    wasSilent = true;
  };
  await probeServer({ ask, currency, staleAfterMs, onSilent }, signal);
}

/**
 * Reads the identity of the cluster: the UID of its namespace kube-system. An etcd that is restored keeps it; a cluster
 * that is built again, or an API server on an empty etcd, has another one. Resolves with true if it has changed. If it
 * cannot be read, it stays as it was.
 */
export async function identify(
  { connection, queue, onFailure }: IdentifyOptions,
  limitMs: number,
  signal: AbortSignal,
): Promise<boolean> {
  const result = await readUid(connection, limitMs, signal);
  if (typeof result !== "string") {
    onFailure?.(result);
    return false;
  }
  const before = queue.clusterId;
  queue.clusterId = result;
  return before !== undefined && before !== result;
}

interface IdentifyOptions {
  readonly connection: KubeConnection;
  readonly queue: ChangeQueue;
  readonly onFailure?: ((failure: RequestFailure) => void) | undefined;
}

async function readUid(
  connection: KubeConnection,
  silenceMs: number,
  signal: AbortSignal,
): Promise<string | RequestFailure> {
  const request = { verb: "get", resource: "namespaces" } as const;
  const path = "/api/v1/namespaces/kube-system";
  const response = await openResponse(connection, { request, path, silenceMs }, signal);
  if (response.kind !== "open") return response;
  const chunks: Buffer[] = [];
  try {
    for (let chunk = await response.next(); chunk.kind !== "end"; chunk = await response.next()) {
      if (chunk.kind !== "chunk") return chunk;
      chunks.push(chunk.bytes);
    }
    const object: unknown = JSON.parse(Buffer.concat(chunks).toString("utf8"));
    const uid = isRecord(object) && isRecord(object.metadata) ? object.metadata.uid : undefined;
    if (typeof uid === "string" && /^[\w-]{1,64}$/.test(uid)) return uid;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  } finally {
    response.close();
  }
  return { ...request, kind: "garbled", message: "the namespace has no UID" };
}
