import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { BucketDigests } from "@kpng/model/wire/digest.ts";
import { endpoint, node, service, slice } from "@kpng/source/testing/build.ts";
import { describe, expect, test } from "vitest";
import type { Snapshot } from "../../store/snapshot.ts";
import { Store } from "../../store/store.ts";
import { nodeProjection } from "./node-projection.ts";
import type { Changes } from "./projection.ts";

// Heap sizes are comparable only after a garbage collection, and vitest's workers run without the flag for it.
setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

function requestOf(nodeName: string, proxyName: string) {
  return { nodeName, proxyName, isExtended: true, wantsNode: false };
}

function sizeOf(changes: Changes): number {
  return [...changes].reduce((sum, frame) => sum + frame.length, 0);
}

describe("caches for future subscribers", () => {
  const store = new Store();
  store.replace({ services: [service()], slices: [slice([endpoint("10.1.0.1")])], nodes: [] });
  const before = store.snapshot;
  store.apply([{ kind: "put-service", service: service({ healthCheckNodePort: 30_000 }) }]);
  const after = store.snapshot;

  test.each([
    { name: "whole views", ask: (proxyName: string) => nodeProjection(requestOf("", proxyName)).whole(after) },
    {
      name: "resumed views",
      // The first frame is Keep.
      ask: (name: string) => [...nodeProjection(requestOf("", name)).resume(after, new BucketDigests())].slice(1),
    },
    { name: "changes", ask: (proxyName: string) => nodeProjection(requestOf("", proxyName)).between(before, after) },
  ])("$name: keep nothing for a proxy name that no Service has", ({ ask }) => {
    expect(sizeOf(ask(""))).toBeGreaterThan(0);
    collectGarbage();
    const { heapUsed } = process.memoryUsage();
    for (let index = 0; index < 500; index++) expect(sizeOf(ask(`${index}`.padEnd(60_000, "x")))).toBe(0);
    collectGarbage();
    expect(process.memoryUsage().heapUsed - heapUsed).toBeLessThan(10_000_000);
  });
});

test("zones and proxy names that contain spaces do not collide", () => {
  const store = new Store();
  const proxied = service({ name: "proxied", proxyName: "b c" });
  store.replace({
    services: [service({ name: "plain", proxyName: "c" }), proxied],
    slices: [],
    nodes: [node("n1", { zone: "a" }), node("n2", { zone: "a b" })],
  });
  const textOf = (snapshot: Snapshot, nodeName: string, proxyName: string): string =>
    Buffer.concat([...nodeProjection(requestOf(nodeName, proxyName)).whole(snapshot)]).toString("latin1");
  expect(textOf(store.snapshot, "n1", "b c")).toContain("ns/proxied");
  expect(textOf(store.snapshot, "n2", "c")).toContain("ns/plain");
});
