import { reasonOf } from "@kpng/process/log.ts";
import type { KubeConnection } from "./connection.ts";
import { IdleTimeout } from "./idle-timeout.ts";
import { readTurn } from "./read-turns.ts";
import { type ApiRequest, failureOfStatus, type RequestFailure } from "./request-failure.ts";

/**
 * Sends a GET of a list or a watch and waits for the headers. An aborted signal gives the failure "lost". `listPages`
 * and `watchOnce` call it and read the body. Separate from `KubeConnection`, because it adds the time limit and turns
 * errors into values.
 */
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
export interface OpenResponse {
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
