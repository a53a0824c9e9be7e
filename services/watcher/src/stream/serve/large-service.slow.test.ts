import { Feature } from "@kpng/model/gen/localv1/api_pb.ts";
import { expect, onTestFinished, test } from "vitest";
import { Store } from "../../store/store.ts";
import { endpoint, node, service, slice } from "../../testing/build.ts";
import { dialHttp2, RawWatch } from "../../testing/raw-watch.ts";
import { serveStore } from "../../testing/serve-store.ts";

const nodeCount = 20;
const slices = 100;
const endpointsPerSlice = 100;

function largeSlice(number: number, isFirstReady: boolean) {
  const endpoints = Array.from({ length: endpointsPerSlice }, (_, index) =>
    endpoint(`10.${number}.0.${index}`, {
      podName: `pod-${number}-${index}`,
      nodeName: `n${index % nodeCount}`,
      conditions: { ready: index > 0 || isFirstReady, serving: index > 0 || isFirstReady, terminating: false },
    }),
  );
  return slice(endpoints, { name: `large-${number}`, serviceName: "large" });
}

/**
 * Milliseconds of this thread's work, which serves, changes and reads. Other programs on the machine do not lengthen
 * it, and an idle thread is never late.
 */
function workMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1_000;
}

/** Measures how long a stream hears nothing, and waits for a text in what it hears. */
class Listener {
  longestSilenceMs = 0;
  awaited = "";
  #lastMs = workMs();

  constructor({ stream }: RawWatch) {
    stream.on("data", (chunk: Buffer) => {
      this.hear();
      if (chunk.includes(this.awaited)) this.awaited = "";
    });
  }

  /** Ends a silence. */
  hear(): void {
    const nowMs = workMs();
    this.longestSilenceMs = Math.max(this.longestSilenceMs, nowMs - this.#lastMs);
    this.#lastMs = nowMs;
  }
}

test("while a Service of 10 000 endpoints changes 100 times a second, no node hears nothing for twice the work of the first views, and changes of other Services arrive within that", {
  timeout: 120_000,
}, async () => {
  const store = new Store();
  const other = service({ name: "other", clusterIP: "10.96.0.2" });
  store.replace({
    services: [service({ name: "large" }), other],
    slices: Array.from({ length: slices }, (_, number) => largeSlice(number, true)),
    nodes: Array.from({ length: nodeCount }, (_, index) => node(`n${index}`)),
  });
  const server = await serveStore(store);
  const startMs = workMs();
  onTestFinished(() => server.stop());
  const listeners = Array.from({ length: nodeCount }, (_, index) => {
    const session = dialHttp2(server.address);
    onTestFinished(() => session.destroy());
    const request = { NodeName: `n${index}`, Features: [Feature.Extended], Count: 10_000 };
    return new Listener(new RawWatch(session, request));
  });
  const haveViews = () => [...server.subscribers.open].filter(({ sentRevision }) => sentRevision > 0).length;
  await expect.poll(haveViews, { timeout: 60_000 }).toBe(nodeCount);
  const viewsMs = workMs() - startMs;
  for (const one of listeners) {
    one.hear();
    one.longestSilenceMs = 0;
  }
  let made = 0;
  const beganMs = workMs();
  const churn = setInterval(() => {
    for (; made < (workMs() - beganMs) / 10; made += 1) {
      const isFirstReady = Math.floor(made / slices) % 2 === 1;
      store.apply([{ kind: "put-slice", slice: largeSlice(made % slices, isFirstReady) }]);
    }
  }, 5);
  onTestFinished(() => clearInterval(churn));
  const waitsMs: number[] = [];
  for (let change = 0; change < 6; change += 1) {
    const madeBefore = made;
    const awaited = `marked${change}`;
    for (const one of listeners) one.awaited = awaited;
    const changedMs = workMs();
    store.apply([{ kind: "put-service", service: { ...other, labels: { awaited } } }]);
    while (listeners.some((one) => one.awaited !== "") || made < madeBefore + 20) {
      if (workMs() - changedMs > 5_000) break;
      await new Promise((resolve) => setTimeout(resolve, 1));
      if (listeners.every((one) => one.awaited === "") && waitsMs.length === change) waitsMs.push(workMs() - changedMs);
    }
  }
  clearInterval(churn);
  for (const one of listeners) one.hear();
  expect(waitsMs).toHaveLength(6);
  expect(Math.max(...waitsMs)).toBeLessThan(2 * viewsMs);
  expect(Math.max(...listeners.map((one) => one.longestSilenceMs))).toBeLessThan(2 * viewsMs);
});
