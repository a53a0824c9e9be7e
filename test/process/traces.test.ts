import { copyFileSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import type { Program } from "@kpng/backend-kit/testing/program.ts";
import { afterEach, beforeEach, expect, type TestContext, test } from "vitest";
import {
  backendStages,
  faultOfWay,
  type OtlpReceiver,
  orphans,
  stageNames,
  startOtlpReceiver,
  type Trace,
  tracesOf,
  watcherStages,
} from "./otlp-traces.ts";
import { kpngMain, usePrograms } from "./programs.ts";

// Traces of the programs as a user starts them, received by a collector. A test starts up to five processes.
let receiver: OtlpReceiver;
beforeEach(async () => {
  receiver = await startOtlpReceiver();
});
// Registered before the hook that stops the programs: hooks after a test run in reverse order.
afterEach(() => receiver[Symbol.asyncDispose]());

const { at, start, started } = usePrograms();
beforeEach(() => copyFileSync(resolve("test/fixtures/kpng/input.yaml"), at("input.yaml")));

function kpng(args: readonly string[], env: Readonly<Record<string, string>> = {}): Program {
  return start(kpngMain, [...args, "--log-level", "debug"], { ...receiver.environment, ...env });
}

async function watch(env: Readonly<Record<string, string>> = {}): Promise<Program> {
  const program = kpng(["file", "-i", at("input.yaml"), "to-api", "--listen", `unix://${at("api.sock")}`], env);
  await program.said('"msg":"listening"');
  return program;
}

/** Starts a backend and waits for its view. */
async function follow(nodeName: string, socket = "api.sock"): Promise<Program> {
  const options = ["--node-name", nodeName, "--error-delay", "50ms", "--callout", "true"];
  const backend = kpng(["local", "--api", `unix://${at(socket)}`, "to-callout", ...options]);
  await backend.said('"msg":"sync complete"');
  return backend;
}

/** Changes the address of the pod that runs on no node, which concerns both nodes. */
function movePod(to: string): void {
  const text = readFileSync(at("input.yaml"), "utf8").replace(/10\.1\.0\.3\d*|10\.9\.0\.\d+/, to);
  writeFileSync(at("new"), text);
  renameSync(at("new"), at("input.yaml"));
}

/** Returns the newest trace that contains all of these nodes. */
async function traceOf(nodes: readonly string[], { signal }: TestContext, holds = (_: Trace) => true) {
  const newest = (): Trace | undefined =>
    tracesOf(receiver.spans).findLast((trace) => nodes.every((name) => trace.nodes.includes(name)) && holds(trace));
  await receiver.until(() => newest() !== undefined, signal);
  const trace = newest() as Trace;
  // A parent span may arrive later than its children, from another process.
  await receiver.until(() => orphans(newest() as Trace).length === 0, signal);
  return newest() ?? trace;
}

const isSent = (trace: Trace): boolean => trace.spans.some(({ name }) => name === "stream.send");

test("one change is one trace, from the file to both nodes, and its stages add up", {
  timeout: 60_000,
}, async (context) => {
  await watch();
  await Promise.all([follow("n1"), follow("n2")]);
  movePod("10.9.0.1");
  const trace = await traceOf(["n1", "n2"], context, isSent);
  expect(stageNames(trace)).toEqual([...backendStages, ...watcherStages].sort());
  expect(trace.root).toMatchObject({
    name: "change",
    attributes: { "kpng.source": "file", "kpng.revision": 2, "kpng.services": ["default/web"], "kpng.nodes": [] },
    resource: { "service.name": "kpng-watcher", "service.namespace": "kpng" },
  });
  for (const node of ["n1", "n2"]) expect(faultOfWay(trace, node)).toBeUndefined();
  const [stored] = trace.spans.filter(({ name }) => name === "store.apply");
  for (const span of trace.spans.filter(({ name }) => name === "stream.send")) {
    expect(span.startMs).toBeGreaterThanOrEqual((stored?.endMs ?? Number.NaN) - 0.001);
    expect(span.attributes).toMatchObject({ "kpng.subscribers": 2 });
  }
  const apply = trace.spans.find(({ name }) => name === "backend.apply");
  expect(apply).toMatchObject({
    parentId: trace.root.spanId,
    attributes: { "kpng.backend": "callout", "kpng.revision": 2, "kpng.services": 1, "kpng.sync_mode": "partial" },
    resource: { "service.name": "kpng-callout" },
  });
  const line = started.find((one) => one.stderr().includes(`"trace_id":"${trace.root.traceId}"`));
  expect(line?.stderr()).toMatch(new RegExp(`"revision":2,.*"trace_id":.*"span_id":"${trace.root.spanId}"`));
});

test("a trace continues through a relay", { timeout: 60_000 }, async (context) => {
  await watch();
  const relay = ["api", "--api", `unix://${at("api.sock")}`, "to-api", "--listen", `unix://${at("relay.sock")}`];
  await kpng(relay).said('"msg":"upstream watcher in sync"');
  await Promise.all([follow("n1"), follow("n2", "relay.sock")]);
  movePod("10.9.0.3");
  const trace = await traceOf(["n1", "n2"], context);
  const relayed = trace.spans.find(({ name, parentId }) => name === "change" && parentId === trace.root.spanId);
  expect(relayed?.attributes).toMatchObject({ "kpng.source": "api", "kpng.services": ["default/web"] });
  const parents = Object.fromEntries(
    trace.spans
      .filter(({ name }) => name === "backend.apply")
      .map(({ attributes, parentId }) => [attributes["k8s.node.name"], parentId]),
  );
  expect(parents).toEqual({ n1: trace.root.spanId, n2: relayed?.spanId });
  expect(trace.spans.map(({ name }) => name)).toContain("source.receive");
});

test("headers and names come from OpenTelemetry's variables, and the last spans are exported at the exit", async (context) => {
  const watcher = await watch({
    OTEL_EXPORTER_OTLP_HEADERS: "authorization=Bearer abc",
    OTEL_SERVICE_NAME: "proxy-control",
    OTEL_RESOURCE_ATTRIBUTES: "k8s.cluster.name=test",
  });
  await watcher.said('"msg":"input read"');
  watcher.stop();
  expect(await watcher.ended).toBe(0);
  await receiver.until((spans) => spans.length >= 3, context.signal);
  expect(receiver.header("authorization")).toBe("Bearer abc");
  const [span] = receiver.spans;
  expect(span?.resource).toMatchObject({ "service.name": "proxy-control", "k8s.cluster.name": "test" });
});
