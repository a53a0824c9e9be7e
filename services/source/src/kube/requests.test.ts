import { setTimeout } from "node:timers/promises";
import { expect, test } from "vitest";
import type { KubeConnection } from "./connection.ts";
import { listObjects, type WatchEvent, watchOnce } from "./requests.ts";

const resource = { path: "/api/v1/nodes", resource: "nodes" };
const { signal } = new AbortController();

/** Connection that answers each request with the next body, in the given chunks. */
function answering(...bodies: readonly (readonly Buffer[])[]): KubeConnection {
  const left = [...bodies];
  const get = async () => ({
    status: 200,
    body: (async function* () {
      yield* left.shift() ?? [];
    })(),
  });
  return { server: "fake", get, post: get, close: () => undefined };
}

const event = (type: string, name: string) =>
  JSON.stringify({ type, object: { metadata: { name, resourceVersion: "7" } } });

async function watch(chunks: readonly Buffer[]) {
  const names: string[] = [];
  const receive = (events: readonly WatchEvent[]): void => {
    for (const one of events) names.push(`${one.kind} ${one.kind === "bookmark" ? "" : one.key}`);
  };
  const request = { ...resource, resourceVersion: "1", timeoutSeconds: 60, silenceMs: 60_000 };
  const end = await watchOnce(answering(chunks), request, { opened: () => undefined, receive }, signal);
  return { names, end };
}

test.each([1, 2, 7, 1_000])("events are found in chunks of %i bytes, whatever is cut", async (size) => {
  const bytes = Buffer.from(
    `\n${event("ADDED", "ä")}\n${event("OTHER", "x")}\n${event("DELETED", "漢字")}\n{"unfinished`,
  );
  const chunks = Array.from({ length: Math.ceil(bytes.length / size) }, (_, at) =>
    bytes.subarray(at * size, (at + 1) * size),
  );
  expect(await watch(chunks)).toEqual({ names: ["put /ä", "delete /漢字"], end: { kind: "closed" } });
});

test.each([
  { what: "a line that is not JSON", line: "<html>\n" },
  { what: "an event without metadata", line: '{"type":"ADDED","object":{}}\n' },
  { what: "a line without an end", line: "x".repeat((16 << 20) + 1) },
  { what: "an event without a resourceVersion", line: '{"type":"ADDED","object":{"metadata":{"name":"n1"}}}\n' },
])("$what ends a watch as garbled, after the events before it", async ({ line }) => {
  const { names, end } = await watch([Buffer.from(`${event("MODIFIED", "a")}\n${line}`)]);
  if (line.endsWith("\n")) expect(names).toEqual(["put /a"]);
  expect(end).toMatchObject({ verb: "watch", resource: "nodes", kind: "garbled" });
});

test("a list has the objects of all pages and the version of the first, and the event loop turns while it is read", async () => {
  const page = (from: number, token: string) => [
    Buffer.from(
      JSON.stringify({
        metadata: { resourceVersion: String(10 + from), continue: token },
        items: Array.from({ length: 500 }, (_, at) => ({ metadata: { name: `n${from + at}` } })),
      }),
    ),
  ];
  let turns = 0;
  const counter = setInterval(() => (turns += 1), 0);
  let count = 0;
  const receive = (): void => {
    count += 1;
    if (count % 50 === 0) for (const until = performance.now() + 2; performance.now() < until; );
  };
  const empty = [Buffer.from('{"metadata":{"resourceVersion":"9"},"items":null}')];
  const connection = answering(page(0, "more"), page(500, "more"), empty);
  expect(await listObjects(connection, resource, {}, receive, signal)).toEqual({
    kind: "listed",
    resourceVersion: "10",
  });
  clearInterval(counter);
  expect(count).toBe(1_000);
  expect(turns).toBeGreaterThan(5);
});

test.each(["", "<html>", "[]", '{"items":[]}', '{"metadata":{"resourceVersion":"1"},"items":{}}'])(
  "a body that is not a list is garbled: %s",
  async (text) => {
    const end = await listObjects(answering([Buffer.from(text)]), resource, {}, () => undefined, signal);
    expect(end).toMatchObject({ verb: "list", resource: "nodes", kind: "garbled" });
  },
);

test("a list may take longer than the silence limit while data arrives, and not without data", async () => {
  const list = (pauseMs: number) => {
    const get: KubeConnection["get"] = async (_path, signal) => ({
      status: 200,
      body: (async function* () {
        for (const part of ['{"metadata":{"resourceVersion":"9"', ',"x":1', ',"y":1', '},"items":null}']) {
          await setTimeout(pauseMs, undefined, { signal });
          yield Buffer.from(part);
        }
      })(),
    });
    const connection = { ...answering(), get };
    return listObjects(connection, resource, { listSilenceMs: 300 }, () => undefined, signal);
  };
  expect(await list(80)).toMatchObject({ kind: "listed" });
  expect(await list(600)).toMatchObject({ kind: "silent" });
});
