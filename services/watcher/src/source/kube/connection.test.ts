import { expect, test } from "vitest";
import type { KubeConnection } from "./connection.ts";
import { openResponse } from "./connection.ts";

const partCount = 50;

/** A response whose body was received completely: 50 parts of 64 KiB. */
const connection: Pick<KubeConnection, "get"> = {
  get: async () => ({
    status: 200,
    body: (async function* () {
      for (let index = 0; index < partCount; index += 1) yield Buffer.alloc(64 * 1024);
    })(),
  }),
};

async function readAll(): Promise<number> {
  const options = { request: { verb: "list", resource: "services" }, path: "/", silenceMs: 60_000 } as const;
  const response = await openResponse(connection as KubeConnection, options, new AbortController().signal);
  if (response.kind !== "open") throw new Error(response.kind);
  for (let byteCount = 0; ; ) {
    const chunk = await response.next();
    if (chunk.kind !== "chunk") return byteCount;
    byteCount += chunk.bytes.length;
    // Parsing.
    const untilMs = performance.now() + 1;
    while (performance.now() < untilMs);
    chunksInTurn += 1;
  }
}

let chunksInTurn = 0;

test("the event loop turns while lists that arrive at the same time are parsed", async () => {
  let isOver = false;
  const counts: number[] = [];
  const turn = (): void => {
    counts.push(chunksInTurn);
    chunksInTurn = 0;
    if (!isOver) setImmediate(turn);
  };
  setImmediate(turn);
  expect(await Promise.all([readAll(), readAll(), readAll()])).toEqual(Array(3).fill(partCount * 64 * 1024));
  isOver = true;
  // 10 ms of parsing, and one more chunk of each list.
  expect(Math.max(...counts, chunksInTurn)).toBeLessThan(16);
});
