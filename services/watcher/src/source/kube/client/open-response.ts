import { reasonOf } from "@kpng/process/log.ts";
import type { KubeConnection } from "./connection.ts";
import { ProgressDeadline } from "./idle-timeout.ts";
import { type Asked, type Failure, failureOfStatus } from "./request-failure.ts";

/** The next piece of an answer's body, its end, or why there is none. */
type Piece = { readonly kind: "piece"; readonly bytes: Buffer } | { readonly kind: "end" } | Failure;

/** An answer with status 200, whose body is read piece by piece. Every failure is a value. */
export interface Exchange {
  readonly kind: "open";
  next(): Promise<Piece>;
  /** Ends the request if it still runs. Must be called. */
  end(): void;
}

export interface ExchangeOptions {
  readonly asked: Asked;
  readonly path: string;
  /** Longest time without a byte, in milliseconds; the answer's head counts as the first. */
  readonly silenceMs: number;
}

/** An error answer is read up to here, in bytes. */
const maxErrorBytes = 1 << 20;

/** Sends a GET. An aborted signal gives "lost". */
export async function openExchange(
  connection: KubeConnection,
  { asked, path, silenceMs }: ExchangeOptions,
  signal: AbortSignal,
): Promise<Exchange | Failure> {
  const stop = new AbortController();
  const deadline = new ProgressDeadline(silenceMs, AbortSignal.any([signal, stop.signal]));
  const end = (): void => {
    deadline.end();
    stop.abort();
  };
  const failureOf = (error: unknown): Failure =>
    deadline.hasExpired
      ? { ...asked, kind: "silent", afterMs: silenceMs }
      : { ...asked, kind: "lost", message: reasonOf(error) };
  try {
    const response = await connection.get(path, deadline.signal);
    const pieces = response.body[Symbol.asyncIterator]();
    const next = async (): Promise<Piece> => {
      try {
        const { done, value } = await pieces.next();
        deadline.moved();
        return done ? { kind: "end" } : { kind: "piece", bytes: value };
      } catch (error) {
        return failureOf(error);
      }
    };
    if (response.status === 200) return { kind: "open", next, end };
    const failure = await readFailure(asked, response.status, next);
    end();
    return failure;
  } catch (error) {
    end();
    return failureOf(error);
  }
}

async function readFailure(asked: Asked, status: number, next: () => Promise<Piece>): Promise<Failure> {
  const pieces: Buffer[] = [];
  let byteCount = 0;
  for (;;) {
    const piece = await next();
    if (piece.kind !== "piece") break;
    byteCount += piece.bytes.length;
    if (byteCount > maxErrorBytes) break;
    pieces.push(piece.bytes);
  }
  const text = Buffer.concat(pieces).toString("utf8");
  try {
    return failureOfStatus(asked, JSON.parse(text), status);
  } catch {
    // A proxy on the way answers in its own words.
    return failureOfStatus(asked, { message: text.trim().slice(0, 200) || "no reason given" }, status);
  }
}
