import { aborted } from "@kpng/process/wait.ts";
import type { KubeConnection, KubeResponse } from "../connection.ts";

/**
 * API server that returns scripted responses and records the requests. The tests of `kubeSource` and `Reflector` pass
 * it as connection; separate, because both need it.
 */
export class FakeServer implements KubeConnection {
  readonly server = "fake";
  /** Request URLs in order. */
  readonly requests: URL[] = [];
  isClosed = false;
  readonly #answer: (url: URL, count: number) => Answer;

  /** `answer` is called with the URL of a request and the number of requests before it. */
  constructor(answer: (url: URL, count: number) => Answer) {
    this.#answer = answer;
  }

  async get(path: string, signal: AbortSignal): Promise<KubeResponse> {
    const url = new URL(path, "http://fake");
    const { status = 200, lines, after = "end" } = this.#answer(url, this.requests.length);
    this.requests.push(url);
    return { status, body: bodyOf(lines, after, signal) };
  }

  async post(path: string): Promise<KubeResponse> {
    throw new Error(`no source sends a POST: ${path}`);
  }

  close(): void {
    this.isClosed = true;
  }
}

/** Response of the fake server: a status and lines, after which the body ends, breaks, or stays open. */
export interface Answer {
  readonly status?: number | undefined;
  /** Sent as JSON, one line each. A list is one line. The signal aborts with the request. */
  readonly lines: readonly unknown[] | ((signal: AbortSignal) => AsyncIterable<unknown>);
  /** Default "end". */
  readonly after?: "end" | "break" | "hang" | undefined;
}

async function* bodyOf(lines: Answer["lines"], after: Answer["after"], signal: AbortSignal): AsyncGenerator<Buffer> {
  const sent = typeof lines === "function" ? lines(signal) : lines;
  for await (const line of sent) yield Buffer.from(`${JSON.stringify(line)}\n`);
  if (after === "end") return;
  if (after === "break") throw new Error("socket hang up");
  await aborted(signal);
  throw new Error("aborted");
}

/** A Node in the format of the API. */
export function rawNode(name: string, resourceVersion = "1"): unknown {
  return { metadata: { name, resourceVersion } };
}

/** Response with a complete list of Nodes. */
export function nodeList(resourceVersion: string, names: readonly string[]): Answer {
  return { lines: [{ metadata: { resourceVersion }, items: names.map((name) => rawNode(name)) }] };
}

/** Watch event in the format of the API. */
export function watchEvent(type: string, object: unknown): unknown {
  return { type, object };
}
