import { connectHttp2 } from "@kpng/process/connection/dial.ts";
import { makeRandom } from "@kpng/process/random.ts";
import { makeCluster } from "@kpng/source/simulate/synthetic.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { serveStore, type TestServer } from "@kpng/watcher/testing/serve-store.ts";
import { afterEach, beforeEach, expect, test } from "vitest";
import { type NodeFault, SimulatedNode } from "./simulated-node.ts";

let store: Store;
let server: TestServer;
const stop = { controller: new AbortController(), runs: [] as Promise<void>[] };
beforeEach(async () => {
  store = new Store();
  store.replace(makeCluster({ services: 20, endpoints: 3, nodes: 5 }));
  server = await serveStore(store);
  stop.controller = new AbortController();
});
afterEach(async () => {
  stop.controller.abort();
  await Promise.all(stop.runs.splice(0));
  await server.stop();
});

function start(count: number, fault?: NodeFault, isExtended = true): readonly SimulatedNode[] {
  const random = makeRandom(5);
  return Array.from({ length: count }, (_, index) => {
    const connect = (windowBytes?: number) => connectHttp2({ api: server.address }, windowBytes);
    const onBatch = (): void => undefined;
    const node = new SimulatedNode({ name: `node-${index}`, connect, isExtended, fault, random, onBatch });
    stop.runs.push(node.run(stop.controller.signal));
    return node;
  });
}

const addService = (): void => {
  const { services, slices, nodes } = makeCluster({ services: 21, endpoints: 3, nodes: 5 });
  store.replace({ services, slices, nodes });
};

test.each([true, false])("nodes get their views and the changes; extended: %s", async (isExtended) => {
  const nodes = start(3, undefined, isExtended);
  await expect.poll(() => nodes.map(({ batchCount }) => batchCount)).toEqual([1, 1, 1]);
  addService();
  await expect.poll(() => nodes.map(({ batchCount }) => batchCount)).toEqual([2, 2, 2]);
  expect(nodes.map(({ revision }) => revision)).toEqual(isExtended ? [2, 2, 2] : [0, 0, 0]);
});

test("extended nodes acknowledge what they have", async () => {
  start(2);
  const applied = () => [...server.subscribers.open].map(({ appliedRevision }) => appliedRevision);
  await expect.poll(applied).toEqual([1, 1]);
});

test("nodes that are cut open new streams, and have their views again", { timeout: 60_000 }, async () => {
  const nodes = start(5, "cut");
  await expect
    .poll(() => nodes.filter(({ lostCount }) => lostCount > 0).length, { timeout: 30_000 })
    .toBeGreaterThan(2);
  expect(nodes.some(({ failure }) => failure?.includes("cut by the simulation"))).toBe(true);
  await expect
    .poll(() => nodes.some(({ isSynced, lostCount }) => isSynced && lostCount > 0), { timeout: 30_000 })
    .toBe(true);
});

test("frozen nodes get no further batch", async () => {
  const [frozen] = start(1, "freeze");
  const [other] = start(1);
  await expect.poll(() => frozen?.batchCount).toBe(1);
  addService();
  await expect.poll(() => other?.batchCount).toBe(2);
  expect(frozen?.batchCount).toBe(1);
});
