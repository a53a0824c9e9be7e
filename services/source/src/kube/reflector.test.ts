import assert from "node:assert/strict";
import { Health } from "@kpng/process/health/health.ts";
import { createLog } from "@kpng/process/log.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { Registry } from "prom-client";
import { expect, test } from "vitest";
import { until } from "../../../../test/cluster/until.ts";
import { makeDecodeOptions } from "../decode/decoded.ts";
import { KindReport, makeSourceMetrics } from "./kind-report.ts";
import { nodeKind, ObjectTracker } from "./objects.ts";
import { isOlder, Reflector, type ReflectorTiming } from "./reflector.ts";
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
  /** Expected requests: "list", "check" or "watch <resourceVersion>". */
  readonly requests: readonly string[];
  /** Expected number of nodes after each revision. */
  readonly nodeCounts: readonly number[];
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
    name: "another ERROR event causes a list, too",
    answers: [nodeList("10", names), { lines: [status(500, "trouble")] }, nodeList("30", names), open],
    requests: ["list", "watch 10", "list", "watch 30"],
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
    name: "a silent watch causes a list",
    timing: { watchSeconds: 0, overdueMs: 30 },
    answers: [nodeList("10", names), open, nodeList("30", names), open],
    requests: ["list", "watch 10", "list", "watch 30"],
    nodeCounts: [20],
  },
  {
    name: "a watch that an overloaded server refuses is repeated, without a list",
    answers: [nodeList("10", names), { status: 429, lines: [{ code: 429 }] }, nodeList("10", []), open],
    requests: ["list", "watch 10", "check", "watch 10"],
    nodeCounts: [20],
  },
  {
    name: "deletions of most objects wait while the watch goes on, and are forgotten if the next list refutes them",
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
    name: "a list of which a page expires has no effect and begins again",
    answers: [
      { lines: [{ metadata: { resourceVersion: "10", continue: "more" }, items: [rawNode("gone")] }] },
      { status: 410, lines: [{ code: 410, message: "the provided continue parameter is too old" }] },
      {
        lines: [
          { metadata: { resourceVersion: "20", continue: "more" }, items: names.slice(1).map((name) => rawNode(name)) },
        ],
      },
      { lines: [{ metadata: { resourceVersion: "20" }, items: [rawNode("node-0")] }] },
      open,
    ],
    requests: ["list", "list", "list", "list", "watch 20"],
    nodeCounts: [20],
  },
  {
    name: "lists are retried while a proxy answers in place of the server",
    answers: [{ status: 200, lines: ["<html>"] }, { status: 502, lines: ["bad gateway"] }, nodeList("10", names), open],
    requests: ["list", "list", "list", "watch 10"],
    nodeCounts: [20],
  },
];

for (const { name, answers, requests, nodeCounts, timing } of scenarios) {
  test(name, async () => {
    const stop = new AbortController();
    const server = new FakeServer((_url, count) => answers[count] ?? open);
    const { health, run, counts, lines } = setUp(server, timing);
    const done = run(stop.signal);
    const explain = (): string => [...server.requests.map(describeRequest), ...lines].join("\n");
    const isDone = () => server.requests.length >= requests.length && counts.length >= nodeCounts.length;
    await until("the requests and revisions of the scenario", isDone, 5_000, explain);
    assert.deepEqual(server.requests.slice(0, requests.length).map(describeRequest), requests, explain());
    assert.deepEqual(counts, nodeCounts, explain());
    if (timing?.overdueMs === undefined) assert.ok(health.isHealthy, explain());
    stop.abort();
    await done;
  });
}

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
  const listsBegun = (count: number) => until(`list ${count} begins`, () => finish.length >= count, 5_000);
  const stop = new AbortController();
  const { reflector, run } = setUp(server);
  const done = run(stop.signal);
  await listsBegun(1);
  reflector.requestList("went-back");
  finish[0]?.();
  await listsBegun(2);
  finish[1]?.();
  stop.abort();
  await done;
});

test("while deletions wait, the kind keeps its version, whatever the watch brings; then it has that of the list", async () => {
  const server = new FakeServer((_url, count) => {
    if (count === 0) return nodeList("10", names);
    if (count === 1) return { lines: [status(410, "too old")] };
    if (count === 2) return nodeList("20", ["node-0"]);
    if (count === 3) return { lines: [watchEvent("ADDED", rawNode("new", "21")), bookmark("22")], after: "hang" };
    return count === 4 ? nodeList("30", ["new"]) : open;
  });
  const stop = new AbortController();
  const { store, run } = setUp(server, { confirmMs: 50 });
  const states: string[] = [];
  store.observe(({ next }) => states.push(`${next.nodes.size} at ${next.position.nodes}`));
  const done = run(stop.signal);
  await expect.poll(() => states, { timeout: 5_000 }).toHaveLength(3);
  assert.deepEqual(states, ["20 at 10", "21 at 10", "1 at 30"]);
  stop.abort();
  await done;
});

test.each([
  { current: "9", next: "10", isBack: false },
  { current: "10", next: "9", isBack: true },
  { current: "120", next: "119", isBack: true },
  { current: "120", next: "120", isBack: false },
  { current: "18446744073709551614", next: "18446744073709551615", isBack: false },
  { current: "opaque-2", next: "opaque-1", isBack: false },
  { current: "7", next: "", isBack: false },
])('version "$next" after "$current" is older: $isBack', ({ current, next, isBack }) => {
  assert.equal(isOlder(next, current), isBack);
});

function setUp(server: FakeServer, timing: ReflectorTiming = {}) {
  const store = new Store();
  const health = new Health();
  const lines: string[] = [];
  const log = createLog("debug", (line) => lines.push(line.trimEnd()));
  const report = new KindReport("nodes", { metrics: makeSourceMetrics(new Registry()), health, log });
  const counts: number[] = [];
  store.observe(({ next }) => counts.push(next.nodes.size));
  const kind = nodeKind(makeDecodeOptions());
  const reflector = new Reflector({
    confirmMs: 20,
    backoff: { minMs: 1, maxMs: 4 },
    ...timing,
    resource: kind,
    connection: server,
    tracker: new ObjectTracker(kind, store, report, () => undefined),
    report,
  });
  const run = (signal: AbortSignal): Promise<void> => reflector.run(signal);
  return { store, reflector, health, lines, counts, run };
}

function describeRequest(url: URL): string {
  const query = url.searchParams;
  if (query.has("watch")) return `watch ${query.get("resourceVersion")}`;
  return query.get("limit") === "1" ? "check" : "list";
}
