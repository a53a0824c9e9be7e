import assert from "node:assert/strict";
import { Health } from "@kpng/process/health/health.ts";
import { createLog } from "@kpng/process/log.ts";
import { Registry } from "prom-client";
import { test } from "vitest";
import { Store } from "../../store/store.ts";
import { makeDecodeOptions } from "../decode/decoded.ts";
import { ChangeQueue } from "./change-queue.ts";
import { ObjectCache } from "./object-cache.ts";
import { nodeKind } from "./object-kinds.ts";
import { makeSourceMetrics, observeReflector } from "./observe-reflector.ts";
import { Reflector, type ReflectorTiming } from "./reflector.ts";
import { type Answer, FakeServer, nodeList, rawNode, watchEvent } from "./testing/fake-server.ts";

const names = Array.from({ length: 20 }, (_, index) => `node-${index}`);
const bookmark = (resourceVersion: string): unknown => watchEvent("BOOKMARK", { metadata: { resourceVersion } });
const status = (code: number, message: string): unknown => watchEvent("ERROR", { kind: "Status", code, message });
const open: Answer = { lines: [], after: "hang" };

interface Scenario {
  readonly name: string;
  readonly timing?: ReflectorTiming | undefined;
  /** One response per request. After the last one, the server is silent. */
  readonly answers: readonly Answer[];
  /** Expected requests: "list", "list whole", "check", "watch <resourceVersion>" or "watch-list". */
  readonly requests: readonly string[];
  /** Expected number of nodes after each revision. */
  readonly nodeCounts: readonly number[];
  /** Whether the source is healthy in the end. Default true. */
  readonly isHealthy?: boolean | undefined;
}

const scenarios: readonly Scenario[] = [
  {
    name: "a watch resumes from the last event or bookmark",
    answers: [
      nodeList("10", names),
      { lines: [watchEvent("ADDED", rawNode("new", "12")), bookmark("15")], after: "break" },
      nodeList("16", ["node-0"]),
      open,
    ],
    requests: ["list", "watch 10", "check", "watch 15"],
    nodeCounts: [20, 21],
  },
  {
    name: "an ERROR event with code 410 causes a list, and no object is missing meanwhile",
    answers: [nodeList("10", names), { lines: [status(410, "too old")] }, nodeList("30", names.slice(1)), open],
    requests: ["list", "watch 10", "list", "watch 30"],
    nodeCounts: [20, 19],
  },
  {
    name: "another ERROR event causes another watch, and a list if it is repeated",
    answers: [
      nodeList("10", names),
      { lines: [status(500, "trouble")] },
      nodeList("11", ["node-0"]),
      { lines: [status(500, "trouble")] },
      nodeList("30", names),
      open,
    ],
    requests: ["list", "watch 10", "check", "watch 10", "list", "watch 30"],
    nodeCounts: [20],
  },
  {
    name: "an event with an older resourceVersion causes a list",
    answers: [nodeList("100", names), { lines: [bookmark("40")], after: "hang" }, nodeList("41", names.slice(2)), open],
    requests: ["list", "watch 100", "list", "watch 41"],
    nodeCounts: [20, 18],
  },
  {
    name: "a server that reconnects with an older state causes a list",
    answers: [
      nodeList("100", names),
      { lines: [], after: "break" },
      nodeList("40", ["node-0"]),
      nodeList("41", names.slice(2)),
      open,
    ],
    requests: ["list", "watch 100", "check", "list", "watch 41"],
    nodeCounts: [20, 18],
  },
  {
    name: "two consecutive silent watches cause a list",
    timing: { watchSeconds: 0, overdueMs: 30 },
    answers: [nodeList("10", names), open, nodeList("10", ["node-0"]), open, nodeList("30", names), open],
    requests: ["list", "watch 10", "check", "watch 10", "list", "watch 30"],
    nodeCounts: [20],
  },
  {
    name: "deletions of most objects are held while the watch goes on, and forgotten if the next list refutes them",
    answers: [
      nodeList("10", names),
      { lines: [status(410, "too old")] },
      nodeList("20", []),
      { lines: [watchEvent("ADDED", rawNode("new", "21"))], after: "hang" },
      nodeList("22", [...names, "new"]),
      open,
    ],
    requests: ["list", "watch 10", "list", "watch 20", "list", "watch 22"],
    nodeCounts: [20, 21],
  },
  {
    name: "deletions of most objects are applied if the next list confirms them",
    answers: [
      nodeList("10", names),
      { lines: [status(410, "too old")] },
      nodeList("20", []),
      open,
      nodeList("21", []),
      open,
    ],
    requests: ["list", "watch 10", "list", "watch 20", "list", "watch 21"],
    nodeCounts: [20, 0],
  },
  {
    name: "a paged list whose continue token expired is requested again in one response",
    answers: [
      { lines: [{ metadata: { resourceVersion: "10", continue: "more" }, items: [rawNode("gone")] }] },
      { status: 410, lines: [{ code: 410, message: "the provided continue parameter is too old" }] },
      nodeList("20", names),
      open,
    ],
    requests: ["list", "list", "list whole", "watch 20"],
    nodeCounts: [20],
  },
  {
    name: "a streamed list is applied at its end marker, and the watch continues from there",
    timing: { usesWatchList: true },
    answers: [
      {
        lines: [
          ...names.map((name) => watchEvent("ADDED", rawNode(name, "5"))),
          watchEvent("BOOKMARK", {
            metadata: { resourceVersion: "10", annotations: { "k8s.io/initial-events-end": "true" } },
          }),
          watchEvent("DELETED", rawNode("node-0", "11")),
        ],
        after: "hang",
      },
      { lines: [watchEvent("DELETED", rawNode("node-0", "11"))], after: "hang" },
    ],
    requests: ["watch-list", "watch 10"],
    nodeCounts: [20, 19],
  },
  {
    name: "an object that is deleted while the list is streamed is not in it",
    timing: { usesWatchList: true },
    answers: [
      {
        lines: [
          ...names.map((name) => watchEvent("ADDED", rawNode(name))),
          watchEvent("DELETED", rawNode("node-3", "9")),
          watchEvent("BOOKMARK", {
            metadata: { resourceVersion: "10", annotations: { "k8s.io/initial-events-end": "true" } },
          }),
        ],
        after: "hang",
      },
      open,
    ],
    requests: ["watch-list", "watch 10"],
    nodeCounts: [19],
  },
  {
    name: "a streamed list that breaks has no effect",
    timing: { usesWatchList: true },
    answers: [
      { lines: [watchEvent("ADDED", rawNode("node-0", "5"))], after: "break" },
      { lines: [watchEvent("ADDED", rawNode("node-0", "5"))], after: "break" },
      nodeList("10", names),
      open,
    ],
    requests: ["watch-list", "watch-list", "list", "watch 10"],
    nodeCounts: [20],
  },
  {
    name: "paged lists are used if the server starts an ordinary watch instead of a streamed list",
    timing: { usesWatchList: true },
    answers: [
      { lines: [watchEvent("ADDED", rawNode("node-0", "5")), bookmark("9")], after: "hang" },
      nodeList("10", names),
      open,
    ],
    requests: ["watch-list", "list", "watch 10"],
    nodeCounts: [20],
  },
  {
    name: "lists are retried while a proxy answers in place of the server",
    answers: [{ status: 200, lines: ["<html>"] }, { status: 502, lines: ["bad gateway"] }, nodeList("10", names), open],
    requests: ["list", "list", "list", "watch 10"],
    nodeCounts: [20],
  },
];

for (const { name, answers, requests, nodeCounts, timing, isHealthy = true } of scenarios) {
  test(name, async () => {
    const stop = new AbortController();
    const server = new FakeServer((_url, count) => answers[count] ?? open);
    const { health, run, counts, lines } = setUp(server, { usesWatchList: false, ...timing });
    const done = run(stop.signal);
    const explain = (): string => [...server.requests.map(describeRequest), ...lines].join("\n");
    for (let turn = 0; server.requests.length < requests.length || counts().length < nodeCounts.length; turn++) {
      assert.ok(turn < 2_000, `no further progress after:\n${explain()}`);
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    assert.deepEqual(server.requests.slice(0, requests.length).map(describeRequest), requests, explain());
    assert.deepEqual(counts(), nodeCounts, explain());
    if (timing?.overdueMs === undefined) assert.equal(health.isHealthy, isHealthy, explain());
    stop.abort();
    await done;
  });
}

test("an invalid object keeps its last valid value and is counted", async () => {
  const good = { metadata: { name: "n", resourceVersion: "2" }, spec: { podCIDRs: ["10.0.0.0/24"] } };
  const bad = { metadata: { name: "n", resourceVersion: "3" }, spec: { podCIDRs: 7 } };
  const server = new FakeServer((_url, count) =>
    count === 0
      ? { lines: [{ metadata: { resourceVersion: "2" }, items: [good] }] }
      : { lines: [watchEvent("MODIFIED", bad), bookmark("4")], after: "hang" },
  );
  const stop = new AbortController();
  const { store, run, metrics } = setUp(server, { usesWatchList: false });
  const done = run(stop.signal);
  const badCount = async (): Promise<number> =>
    (await metrics.getSingleMetric("kpng_source_bad_objects_total")?.get())?.values[0]?.value ?? 0;
  for (let turn = 0; (await badCount()) === 0; turn++) {
    assert.ok(turn < 2_000, "the bad object was not counted");
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  assert.deepEqual(store.snapshot.nodes.get("n")?.podCIDRs, ["10.0.0.0/24"]);
  stop.abort();
  await done;
});

test("a list that began before another one was requested does not count as the requested one", async () => {
  const finish: (() => void)[] = [];
  const server = new FakeServer(({ searchParams }) =>
    searchParams.has("watch") ? open : nodeList(String(10 + finish.length), names),
  );
  const get = server.get.bind(server);
  server.get = async (path, signal) => {
    const response = await get(path, signal);
    if (!path.includes("watch")) await new Promise<void>((resolve) => finish.push(resolve));
    return response;
  };
  const listsBegun = async (count: number): Promise<void> => {
    for (let turn = 0; finish.length < count; turn++) {
      assert.ok(turn < 2_000, `list ${count} did not begin`);
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  };
  const stop = new AbortController();
  const { reflector, run } = setUp(server, { usesWatchList: false });
  const done = run(stop.signal);
  await listsBegun(1);
  reflector.requestList("went-back");
  finish[0]?.();
  await listsBegun(2);
  finish[1]?.();
  stop.abort();
  await done;
});

test("while deletions are held, the kind keeps its version, whatever the watch brings; then it has that of the list", async () => {
  const server = new FakeServer((_url, count) => {
    if (count === 0) return nodeList("10", names);
    if (count === 1) return { lines: [status(410, "too old")] };
    if (count === 2) return nodeList("20", ["node-0"]);
    if (count === 3) return { lines: [watchEvent("ADDED", rawNode("new", "21")), bookmark("22")], after: "hang" };
    return count === 4 ? nodeList("30", ["new"]) : open;
  });
  const stop = new AbortController();
  const { store, run } = setUp(server, { usesWatchList: false, confirmMs: 50 });
  const states: string[] = [];
  store.observe(({ next }) => states.push(`${next.nodes.size} at ${next.position.nodes}`));
  const done = run(stop.signal);
  for (let turn = 0; states.length < 3; turn++) {
    assert.ok(turn < 5_000, `states: ${states}`);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  assert.deepEqual(states, ["20 at 10", "21 at 10", "1 at 30"]);
  stop.abort();
  await done;
});

function setUp(server: FakeServer, timing: ReflectorTiming) {
  const store = new Store();
  const health = new Health();
  const metrics = new Registry();
  const lines: string[] = [];
  const log = createLog("debug", (line) => lines.push(line.trimEnd()));
  const observer = observeReflector({ kind: "nodes", metrics: makeSourceMetrics(metrics), health, log });
  const counts: number[] = [];
  const count = (): void => {
    const { revision, nodes } = store.snapshot;
    if (revision > counts.length) counts.push(nodes.size);
  };
  const queue = new ChangeQueue({
    apply: (changes, origin) => {
      store.apply(changes, origin);
      count();
    },
    replace: (objects, origin) => {
      store.replace(objects, origin);
      count();
    },
  });
  const kind = nodeKind(makeDecodeOptions());
  const reflector = new Reflector({
    confirmMs: 20,
    backoff: { minMs: 1, maxMs: 4 },
    ...timing,
    resource: kind,
    connection: server,
    handler: new ObjectCache(kind, queue, observer),
    observer,
  });
  const run = (signal: AbortSignal): Promise<void> => reflector.run(signal);
  return { store, reflector, health, metrics, lines, counts: () => counts, run };
}

function describeRequest(url: URL): string {
  const query = url.searchParams;
  if (query.has("sendInitialEvents")) return "watch-list";
  if (query.has("watch")) return `watch ${query.get("resourceVersion")}`;
  if (query.get("limit") === "1") return "check";
  return query.has("limit") ? "list" : "list whole";
}
