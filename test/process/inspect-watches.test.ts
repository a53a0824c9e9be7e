import { describe, expect, test } from "vitest";
import { useInspectedWatcher } from "./inspected-watcher.ts";

const watcher = useInspectedWatcher();
const { list, join, applied, change, client } = watcher;

describe("watches", () => {
  const open = new AbortController();

  test("start with all objects and continue with changes", async () => {
    list();
    const signal = AbortSignal.any([open.signal]);
    const services = client().watchServices({}, { signal })[Symbol.asyncIterator]();
    const endpoints = client().watchEndpoints({ namespace: "ns", service: "web" }, { signal })[Symbol.asyncIterator]();
    expect((await services.next()).value).toMatchObject({ revision: 1n, isComplete: true, deleted: [] });
    expect((await endpoints.next()).value.endpoints).toHaveLength(2);
    change();
    expect((await endpoints.next()).value.endpoints).toMatchObject([{ pod: "web-2", isTerminating: true }]);
    expect((await services.next()).value.services).toMatchObject([
      { name: "web", endpoints: { ready: 1, terminating: 1 } },
    ]);
    watcher.store.apply([
      { kind: "delete-service", key: "ns/web" },
      { kind: "delete-slice", key: "ns/web/web-a" },
    ]);
    expect((await services.next()).value).toMatchObject({ services: [], deleted: ["ns/web"] });
    expect((await endpoints.next()).value.deleted).toEqual(["ns/web/web-a/10.1.0.1", "ns/web/web-a/10.1.0.2"]);
  });

  test("of nodes, subscribers and changes follow acknowledgements", async () => {
    list();
    const watchedNodes = client().watchNodes({}, { signal: open.signal })[Symbol.asyncIterator]();
    const watchedChanges = client()
      .watchChanges({ sinceRevision: 2n }, { signal: open.signal })
      [Symbol.asyncIterator]();
    const subscribers = client().watchSubscribers({}, { signal: open.signal })[Symbol.asyncIterator]();
    expect((await watchedNodes.next()).value.nodes).toHaveLength(3);
    expect((await watchedChanges.next()).value).toMatchObject({ changes: [], isComplete: true });
    expect((await subscribers.next()).value).toMatchObject({ subscribers: [], isComplete: true });
    const one = await join("n1");
    expect((await watchedNodes.next()).value.nodes).toMatchObject([{ name: "n1" }]);
    expect((await subscribers.next()).value.subscribers).toMatchObject([{ node: "n1" }]);
    change();
    await one.batch();
    applied(one);
    for (let appliedCount = 0; appliedCount === 0; ) {
      const { changes } = (await watchedChanges.next()).value;
      expect(changes).toMatchObject([{ revision: 2n }]);
      appliedCount = changes[0].appliedCount;
    }
    const { id } = (await client().listSubscribers({})).subscribers[0] ?? {};
    one.close();
    for (;;) {
      const { deleted } = (await subscribers.next()).value;
      if (deleted.length === 0) continue;
      expect(deleted).toEqual([id]);
      break;
    }
    open.abort();
  });

  test("end when the watcher stops", async () => {
    list();
    const watch = client().watchNodes({})[Symbol.asyncIterator]();
    await watch.next();
    const ended = expect(watch.next()).rejects.toThrow(/unavailable/);
    await watcher.server.stop();
    await ended;
  });
});
