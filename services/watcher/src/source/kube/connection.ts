import { setImmediate as nextTurn } from "node:timers/promises";
import { assertNever, isRecord } from "@kpng/model/narrowing.ts";
import { reasonOf } from "@kpng/process/log.ts";
import type { Kind } from "../source.ts";

/**
 * Status and body of a response of the API server. The body is read while it arrives. The source `kube` and
 * `kubeAuthority` send their requests through the types of this file only, so tests can replace the API server.
 */
export interface KubeResponse {
  readonly status: number;
  readonly body: AsyncIterable<Buffer>;
}

/** Connection to an API server. `connectKube`, which imports the Kubernetes client, is in `connect.ts`: loading it is slow. */
export interface KubeConnection {
  /** URL for logs, e.g. "https://10.96.0.1:443". */
  readonly server: string;
  /**
   * Sends a GET and resolves with the response once its headers have arrived, whatever the status. `path` may include a
   * query. Aborting `signal` ends the request and its body.
   *
   * Errors: those of Node.js if the connection fails, also while `body` is read.
   */
  get(path: string, signal: AbortSignal): Promise<KubeResponse>;
  /** Sends a POST with a body of JSON; otherwise like {@link get}. For reviews, which create no object. */
  post(path: string, body: unknown, signal: AbortSignal): Promise<KubeResponse>;
  /** Closes the idle connections. */
  close(): void;
}

/** Sends a GET of a list or a watch and waits for the headers. An aborted signal gives the failure "lost". */
export async function openResponse(
  connection: KubeConnection,
  { request, path, silenceMs }: OpenOptions,
  signal: AbortSignal,
): Promise<OpenResponse | RequestFailure> {
  const closing = new AbortController();
  const timeout = new IdleTimeout(silenceMs, AbortSignal.any([signal, closing.signal]));
  const close = (): void => {
    timeout.stop();
    closing.abort();
  };
  const failureOf = (error: unknown): RequestFailure =>
    timeout.hasExpired
      ? { ...request, kind: "silent", afterMs: silenceMs }
      : { ...request, kind: "lost", message: reasonOf(error) };
  try {
    const response = await connection.get(path, timeout.signal);
    const chunks = response.body[Symbol.asyncIterator]();
    let rest: Buffer = Buffer.alloc(0);
    const next = async (): Promise<Chunk> => {
      try {
        await readTurn();
        if (rest.length === 0) {
          const { done, value } = await chunks.next();
          timeout.restart();
          if (done) return { kind: "end" };
          rest = value;
        }
        const bytes = rest.subarray(0, maxChunkBytes);
        rest = rest.subarray(bytes.length);
        return { kind: "chunk", bytes };
      } catch (error) {
        return failureOf(error);
      }
    };
    if (response.status === 200) return { kind: "open", next, close };
    const failure = await readFailure(request, response.status, next);
    close();
    return failure;
  } catch (error) {
    close();
    return failureOf(error);
  }
}

/** Next part of a response body: bytes, the end, or why reading failed. */
type Chunk = { readonly kind: "chunk"; readonly bytes: Buffer } | { readonly kind: "end" } | RequestFailure;

/** A response with status 200. Its body is read chunk by chunk, and every failure is a value. */
interface OpenResponse {
  readonly kind: "open";
  next(): Promise<Chunk>;
  /** Aborts the request if it is still running. Must be called. */
  close(): void;
}

/** Request of {@link openResponse}. */
export interface OpenOptions {
  /** Names the request in failures. */
  readonly request: ApiRequest;
  readonly path: string;
  /** Longest time without a byte, in milliseconds. The headers count as the first bytes. */
  readonly silenceMs: number;
}

/** Larger chunks are passed on in parts, which take about a millisecond to parse; the first ones take longer. */
const maxChunkBytes = 16 * 1024;

/** Longest body of an error response that is read, in bytes. */
const maxErrorBytes = 1 << 20;

async function readFailure(request: ApiRequest, status: number, next: () => Promise<Chunk>): Promise<RequestFailure> {
  const chunks: Buffer[] = [];
  let byteCount = 0;
  for (;;) {
    const chunk = await next();
    if (chunk.kind !== "chunk") break;
    byteCount += chunk.bytes.length;
    if (byteCount > maxErrorBytes) break;
    chunks.push(chunk.bytes);
  }
  const text = Buffer.concat(chunks).toString("utf8");
  try {
    return failureOfStatus(request, JSON.parse(text), status);
  } catch {
    // A proxy in between answers with a text of its own instead of a Status object.
    return failureOfStatus(request, { message: text.trim().slice(0, 200) || "no reason given" }, status);
  }
}

/**
 * Aborts its signal after a period without progress, or when the parent signal aborts. Timers run on the monotonic
 * clock, so setting the wall clock has no effect.
 */
class IdleTimeout {
  readonly signal: AbortSignal;
  readonly #timer: NodeJS.Timeout;
  readonly #idle = new AbortController();

  constructor(ms: number, parent: AbortSignal) {
    this.signal = AbortSignal.any([parent, this.#idle.signal]);
    this.#timer = setTimeout(() => this.#idle.abort(), ms);
  }

  /** True if the period passed without progress; false if only the parent aborted. */
  get hasExpired(): boolean {
    return this.#idle.signal.aborted;
  }

  /** Restarts the period. */
  restart(): void {
    this.#timer.refresh();
  }

  /** Stops the timer. Must be called, because the timer keeps the process alive. */
  stop(): void {
    clearTimeout(this.#timer);
  }
}

/**
 * Lets other work run while responses of the API server are parsed. Resolves at once, or in the next turn of the event
 * loop after 10 ms of parsing. Without it, a list is one long turn: a read of a socket fills many chunks, which follow
 * each other without a turn.
 */
export async function readTurn(): Promise<void> {
  while (performance.now() >= untilMs) {
    turning ??= nextTurn().then(() => {
      turning = undefined;
      untilMs = performance.now() + sliceMs;
    });
    await turning;
  }
}

/** Longest time of parsing in one turn, in milliseconds. */
const sliceMs = 10;

let untilMs = 0;
let turning: Promise<void> | undefined;

/**
 * Verb and resource of a request to the API server, named as in RBAC rules. This file classifies failed requests of
 * `kpng kube`, so that the reflector can decide whether to retry, relist or page.
 */
export interface ApiRequest {
  readonly verb: "get" | "list" | "watch";
  /** *Shape:* `services`, `endpointslices.discovery.k8s.io`. */
  readonly resource: string;
}

/** Why a list or a watch failed or ended early. The kinds are label values of the source's metrics. */
export type RequestFailure =
  /** The server refused it, by HTTP status or by an ERROR event in the stream. */
  | (ApiRequest & { readonly kind: "refused"; readonly status: number; readonly message: string })
  /** Status 410: the server no longer has the resourceVersion, or the continue token of a paged list. */
  | (ApiRequest & { readonly kind: "expired"; readonly message: string })
  /** The connection could not be opened, or broke. */
  | (ApiRequest & { readonly kind: "lost"; readonly message: string })
  /** The connection is open, but no data arrived for `afterMs` milliseconds. */
  | (ApiRequest & { readonly kind: "silent"; readonly afterMs: number })
  /** The response is not in the format of the Kubernetes API. */
  | (ApiRequest & { readonly kind: "garbled"; readonly message: string });

/**
 * Returns the text of a failure for logs and health. It names verb and resource: an admin grants permissions by them.
 */
export function describeFailure(failure: RequestFailure): string {
  const what = `${failure.verb} ${failure.resource}`;
  switch (failure.kind) {
    case "refused":
      return `${failure.status === 403 ? "not allowed to" : "cannot"} ${what} (${failure.status}): ${failure.message}`;
    case "expired":
      return `cannot ${what} (410): ${failure.message}`;
    case "lost":
      return `cannot ${what}: ${failure.message}`;
    case "silent":
      return `cannot ${what}: no data for ${failure.afterMs} ms`;
    case "garbled":
      return `cannot ${what}: invalid response: ${failure.message}`;
    default:
      return assertNever(failure);
  }
}

/**
 * Returns the failure that a Status object describes: `body` is a whole response (`openResponse` calls it), or the
 * object of an ERROR event (`watchOnce`).
 */
export function failureOfStatus(request: ApiRequest, body: unknown, httpStatus: number): RequestFailure {
  const code = isRecord(body) && typeof body.code === "number" ? body.code : httpStatus;
  const message = isRecord(body) && typeof body.message === "string" ? body.message : "no reason given";
  if (code === 410) return { ...request, kind: "expired", message };
  return { ...request, kind: "refused", status: code, message };
}

/** A collection of the Kubernetes API that the source lists and watches, for example all Services. */
export interface Resource {
  readonly kind: KubeKind;
  /** Path of the collection over all namespaces, e.g. `/api/v1/services`. */
  readonly path: string;
  /** *Shape:* `resource.group` as in RBAC rules, e.g. `endpointslices.discovery.k8s.io`. */
  readonly resource: string;
  /** Label selector of its lists and watches. Default: all objects. */
  readonly labelSelector?: string | undefined;
}

/** Name of a watched kind in metrics, logs and health. */
export type KubeKind = Kind | "servicecidrs";
