import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { create } from "@bufbuild/protobuf";
import type { ByteText } from "@kpng/model/byte-text.ts";
import { type OpItem, OpItemSchema, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import { endpoint as makeEndpoint, service as makeService } from "@kpng/model/testing/views.ts";
import { encodeBuckets, itemBucket } from "@kpng/model/wire/digest.ts";
import { endpointBytes } from "@kpng/model/wire/endpoint-message.ts";
import { makeRandom, makeRandomBelow } from "@kpng/process/random.ts";
import { expect, test } from "vitest";
import {
  applyOps,
  deleteEndpoint,
  deleteService,
  put,
  putEndpoint,
  putNode,
  putService,
  reset,
} from "../testing/ops.ts";
import { BackendError } from "../types/backend-error.ts";
import { PackedEndpoints } from "./packed-endpoints.ts";
import { SortedMap } from "./sorted-map.ts";
import { ViewState } from "./view-state.ts";

// Heap sizes are comparable only after a garbage collection, and vitest's workers run without the flag for it.
setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

function heapUsed(): number {
  collectGarbage();
  return process.memoryUsage().heapUsed;
}

function batch(isReset: boolean, ...ops: OpItem[]): OpItem[] {
  return isReset ? [reset, ...ops] : ops;
}

const start = [
  putNode("n1"),
  putService("a/web"),
  putService("b/web"),
  putEndpoint("a/web/x", "10.1.0.1"),
  putEndpoint("a/web/y", "10.1.0.2"),
];

/** `changes`: touched Services, then the numbers of changed Services and endpoints. */
const cases: { name: string; batches: OpItem[][]; changes: (string | number)[] }[] = [
  {
    name: "the first batch touches everything",
    batches: [batch(true, ...start)],
    changes: ["a/web", "b/web", 2, 2],
  },
  {
    name: "the same view after a Reset changes nothing",
    batches: [batch(true, ...start), batch(true, ...start)],
    changes: [0, 0],
  },
  {
    name: "after a Reset, what the new stream does not have is deleted and only what differs is put",
    batches: [
      batch(true, ...start),
      batch(
        true,
        putService("a/web", "10.0.0.9"),
        putEndpoint("a/web/y", "10.1.0.2"),
        putEndpoint("a/web/z", "10.1.0.3"),
      ),
    ],
    changes: ["a/web", "b/web", 2, 2],
  },
  {
    name: "an empty view after a Reset deletes everything",
    batches: [batch(true, ...start), batch(true)],
    changes: ["a/web", "b/web", 2, 2],
  },
  {
    name: "a put of what is there already is no change",
    batches: [batch(true, ...start), batch(false, putService("a/web"), putEndpoint("a/web/x", "10.1.0.1"))],
    changes: [0, 0],
  },
  {
    name: "a delete of what is not there is no change",
    batches: [
      batch(true, ...start),
      batch(false, deleteEndpoint("a/web/q"), deleteEndpoint("q/q/q"), deleteService("q/q")),
    ],
    changes: [0, 0],
  },
  {
    name: "of a put and a delete of the same key in one batch the last one counts",
    batches: [
      batch(true, ...start),
      batch(false, putEndpoint("a/web/z"), deleteEndpoint("a/web/z"), deleteEndpoint("a/web/x")),
    ],
    changes: ["a/web", 0, 1],
  },
  {
    name: "a Service deleted without its endpoints takes them along",
    batches: [batch(true, ...start), batch(false, deleteService("a/web"))],
    changes: ["a/web", 1, 2],
  },
  {
    name: "a Service deleted and put again in one batch has no endpoints of before",
    batches: [
      batch(true, ...start),
      batch(false, deleteService("a/web"), putService("a/web"), putEndpoint("a/web/y", "10.1.0.2")),
    ],
    changes: ["a/web", 0, 1],
  },
];

test.each(cases)("$name", ({ batches, changes }) => {
  const state = new ViewState("n1");
  const updates = batches.map((each) => applyOps(state, each));
  const { touched = [], counts, view } = updates.at(-1) ?? {};
  expect([...[...touched].sort(), counts?.services, counts?.endpoints]).toEqual(changes);
  const endpoints = [...state.view.services.values()].flatMap((service) => service.endpoints);
  expect(view?.endpointCount).toBe(endpoints.length);
  expect(updates.map((update) => update.isFirst)).toEqual(batches.map((_, index) => index === 0));
});

test("an endpoint without its Service refuses the whole batch and leaves the view as it was", () => {
  const state = new ViewState("n1");
  const { view } = applyOps(state, batch(true, ...start));
  expect(() => applyOps(state, batch(false, deleteService("b/web"), putEndpoint("b/web/x")))).toThrow(BackendError);
  expect(() => applyOps(state, batch(true, putEndpoint("a/web/x")))).toThrow("a Service that it has not sent");
  expect(state.view).toBe(view);
  expect([...state.view.services.keys()]).toEqual(["a/web", "b/web"]);
});

test("a node without items, or in doubt about them, sends no digests", () => {
  const state = new ViewState("n1");
  const hasDigests = (ops: OpItem[]): boolean => applyOps(state, ops) && state.buckets !== undefined;
  expect([hasDigests([reset]), hasDigests(start), hasDigests([reset])]).toEqual([false, true, false]);
  expect(hasDigests(batch(true, ...start))).toBe(true);
  state.doubt();
  expect(state.buckets).toBeUndefined();
});

test("Services that do not change stay the same objects, through a Reset too", () => {
  const state = new ViewState("n1");
  const first = applyOps(state, batch(true, ...start)).view;
  const second = applyOps(state, batch(true, ...start.slice(0, 4), putEndpoint("a/web/y", "10.9.9.9"))).view;
  expect(second.services.get("b/web")).toBe(first.services.get("b/web"));
  expect(second.services.get("a/web")).not.toBe(first.services.get("a/web"));
  expect(first.services.get("a/web")?.endpoints[1]?.addresses.v4).toEqual(["10.1.0.2"]);
});

test("an item outside the buckets of Keep is deleted unless it is put again", () => {
  const [state, expected] = [new ViewState("n1"), new ViewState("n1")];
  const kept = [putService("n/c"), putEndpoint("n/b/q"), putNode("n1")];
  const unknown = put(99 as SetName, "x", new Uint8Array([1]));
  const items = [putService("n/a"), putEndpoint("n/a/p"), putService("n/b"), ...kept, unknown];
  applyOps(state, batch(true, ...items));
  const services = ["n/a", "n/b"].map((path) => itemBucket(SetName.ServicesSet, path));
  const lost = [...services, itemBucket(SetName.EndpointsSet, "n/a/p"), itemBucket(99 as SetName, "x")];
  const Buckets = encodeBuckets((bucket) => !lost.includes(bucket));
  const changed = putService("n/b", "10.0.0.9");
  const { view, touched, counts } = applyOps(state, [
    create(OpItemSchema, { Op: { case: "Keep", value: { Buckets } } }),
    changed,
  ]);
  expect([...touched].sort()).toEqual(["n/a", "n/b"]);
  expect(counts).toEqual({ services: 2, endpoints: 1 });
  expect([...view.services].map(([key, { endpoints }]) => [key, endpoints.length])).toEqual([
    ["n/b", 1],
    ["n/c", 0],
  ]);
  expect(view.node?.name).toBe("n1");
  applyOps(expected, batch(true, changed, ...kept));
  expect(state.buckets).toEqual(expected.buckets);
  expect(state.next().held.bytes).toBe(expected.next().held.bytes);
});

test("endpoints that change at random are those of a plain map, and so are their differences", () => {
  const random = makeRandomBelow(makeRandom(1));
  let packed = PackedEndpoints.none;
  const plain = new Map<string, ByteText>();
  for (let round = 0; round < 200; round++) {
    const changes = new Map<string, ByteText | undefined>();
    for (let count = random(round % 40 === 0 ? 400 : 6); count > 0; count--) {
      const message = Buffer.from(
        endpointBytes(makeEndpoint(`10.1.0.${random(250)}`), makeService("a/web").service, true),
      );
      changes.set(`é${random(900)}`, random(3) === 0 ? undefined : message.toString("latin1"));
    }
    const before = packed;
    packed = before.with(changes);
    const differing = [...changes.keys()].filter((key) => plain.get(key) !== changes.get(key));
    for (const [key, value] of changes) value === undefined ? plain.delete(key) : plain.set(key, value);
    expect(packed.keys()).toEqual([...plain.keys()].sort());
    const differences = packed.differencesFrom(before).map(({ key }) => key);
    expect(differences.sort()).toEqual(differing.sort());
    const whole = PackedEndpoints.none.with(plain);
    expect(packed.differencesFrom(whole)).toEqual([]);
    const decoded = packed.decode().map(({ key, addresses }) => `${key} ${addresses.v4}`);
    expect(whole.decode().map(({ key, addresses }) => `${key} ${addresses.v4}`)).toEqual(decoded);
  }
});

test("an endpoint that is left of many takes no more memory than before they came", () => {
  const message = Buffer.from(endpointBytes(makeEndpoint("10.1.0.1"), makeService("a/web").service, true));
  const others = Array.from({ length: 100 }, (_, at) => [`other-endpoint-${at}`, message.toString("latin1")] as const);
  const start = heapUsed();
  const all = Array.from({ length: 500 }, (_, at) => {
    const many = PackedEndpoints.none.with(new Map([...others, [`endpoint-${at}`, message.toString("latin1")]]));
    return many.with(new Map(others.map(([key]) => [key, undefined])));
  });
  expect((heapUsed() - start) / all.length).toBeLessThan(1_000);
});

test("a view that grows by more endpoints than are packed at once has each of them once", () => {
  const state = new ViewState("n1");
  const names = Array.from({ length: 10_000 }, (_, index) => `a/${index % 2 === 0 ? "web" : "db"}/e${index}`);
  const ops = names.map((name) => putEndpoint(name));
  const { view, counts } = applyOps(state, batch(true, putService("a/web"), putService("a/db"), ...ops, ...ops));
  const keys = [...view.services].flatMap(([key, { endpoints }]) =>
    endpoints.map((endpoint) => `${key}/${endpoint.key}`),
  );
  expect(keys.sort()).toEqual(names.sort());
  expect(counts.endpoints).toBe(10_000);
});

test("Services and endpoints ascend by key whatever the order of their arrival", () => {
  const state = new ViewState("n1");
  const { view } = applyOps(
    state,
    batch(true, putService("b/b"), putService("a/z"), putService("a/a"), putEndpoint("a/a/2"), putEndpoint("a/a/1")),
  );
  expect([...view.services.keys()]).toEqual(["a/a", "a/z", "b/b"]);
  expect(view.services.get("a/a")?.endpoints.map((endpoint) => endpoint.key)).toEqual(["1", "2"]);
});

test("a map changed at random holds what a plain map holds, in ascending order", () => {
  const random = makeRandomBelow(makeRandom(1));
  let sorted = new SortedMap<string, number>();
  const plain = new Map<string, number>();
  for (let round = 0; round < 300; round++) {
    const changes = new Map<string, number | undefined>();
    const count = random(round % 50 === 0 ? 800 : 8);
    for (let i = 0; i < count; i++) changes.set(`k${random(2_000)}`, random(3) === 0 ? undefined : random(1_000));
    const before = [...sorted];
    const after = sorted.with(changes);
    for (const [key, value] of changes) value === undefined ? plain.delete(key) : plain.set(key, value);
    const expected = [...plain].sort(([a], [b]) => (a < b ? -1 : 1));
    expect([...after]).toEqual(expected);
    expect(after.size).toBe(plain.size);
    expect([...sorted], "the map before is untouched").toEqual(before);
    sorted = after;
  }
  for (let i = 0; i < 2_000; i++) expect(sorted.get(`k${i}`)).toBe(plain.get(`k${i}`));
});
