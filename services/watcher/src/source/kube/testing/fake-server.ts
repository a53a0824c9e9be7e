import { aborted } from "@kpng/process/wait.ts";
import type { KubeConnection, KubeResponse } from "../client/connection.ts";

/** What the fake answers to one request: a status and lines, after which the body ends, breaks, or stays open. */
export interface Answer {
  readonly status?: number | undefined;
  /** Sent as JSON, a line each; a list is one. */
  readonly lines: readonly unknown[];
  /** Default "end". */
  readonly after?: "end" | "break" | "hang" | undefined;
}

/** For tests: an API server that answers what a test says, and remembers what it was asked. */
export class FakeServer implements KubeConnection {
  readonly server = "fake";
  /** Paths with their queries, in the order of the requests. */
  readonly asked: URL[] = [];
  readonly #answer: (url: URL, count: number) => Answer;

  /** `answer` gets the request and how many came before it. */
  constructor(answer: (url: URL, count: number) => Answer) {
    this.#answer = answer;
  }

  async get(path: string, signal: AbortSignal): Promise<KubeResponse> {
    const url = new URL(path, "http://fake");
    const { status = 200, lines, after = "end" } = this.#answer(url, this.asked.length);
    this.asked.push(url);
    return { status, body: bodyOf(lines, after, signal) };
  }

  close(): void {}
}

async function* bodyOf(lines: readonly unknown[], after: Answer["after"], signal: AbortSignal): AsyncGenerator<Buffer> {
  for (const line of lines) yield Buffer.from(`${JSON.stringify(line)}\n`);
  if (after === "end") return;
  if (after === "break") throw new Error("socket hang up");
  await aborted(signal);
  throw new Error("aborted");
}

/** A Node as the API has it. */
export function rawNode(name: string, resourceVersion = "1"): unknown {
  return { metadata: { name, resourceVersion } };
}

/** A complete list of Nodes. */
export function nodeList(resourceVersion: string, names: readonly string[]): Answer {
  return { lines: [{ metadata: { resourceVersion }, items: names.map((name) => rawNode(name)) }] };
}

/** One event of a watch. */
export function watchEvent(type: string, object: unknown): unknown {
  return { type, object };
}
