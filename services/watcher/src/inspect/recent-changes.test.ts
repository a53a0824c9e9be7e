import { create } from "@bufbuild/protobuf";
import { ObjectKind } from "@kpng/model/gen/kpng/inspect/v1/change_pb.ts";
import { SubscriberSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import { durationOf, timestampOf } from "@kpng/model/wire/time-message.ts";
import { endpoint, node, service, slice } from "@kpng/source/testing/build.ts";
import { Registry } from "prom-client";
import { beforeEach, expect, test } from "vitest";
import { Store } from "../store/store.ts";
import { type Subscriber, Subscribers } from "../stream/session/subscribers.ts";
import { changeRow, Distribution, RecentChanges } from "./recent-changes.ts";

let nowMs: number;
let store: Store;
let subscribers: Subscribers;
let changes: RecentChanges;

/** Starts a store with one Service and one Node, recorded from revision 1 on. */
function begin(size?: number): void {
  store = new Store();
  subscribers = new Subscribers(store, new Registry(), () => nowMs);
  changes = new RecentChanges(size);
  store.observe((update) => changes.add(update));
  subscribers.observe(changes);
  store.replace({ services: [service()], slices: [slice([endpoint("10.1.0.1")])], nodes: [node("n1")] });
  nowMs = store.snapshot.storedAtMs;
}

beforeEach(() => begin());

function subscribe(nodeName: string): Subscriber {
  const subscriber = subscribers.make("local", "").open();
  subscriber.nodeName = nodeName;
  send(subscriber, 0);
  acknowledge(subscriber, store.snapshot.revision);
  return subscriber;
}

function send(subscriber: Subscriber, after: number, revision = store.snapshot.revision): void {
  subscriber.sent({ after, revision, byteCount: 1 });
}

function acknowledge(subscriber: Subscriber, applied: number, failed = 0, millis?: readonly number[]): void {
  const [waitMs = 0, renderMs = 0, commitMs = 0] = millis ?? [];
  const timings = millis === undefined ? undefined : { waitMs, renderMs, commitMs };
  subscriber.acknowledge({ applied, failed, error: failed === 0 ? "" : "nft refused", timings });
}

/** Makes revision n + 1. */
function change(name: string): number {
  store.apply([{ kind: "put-service", service: service({ name }) }]);
  return store.snapshot.revision;
}

const at = (revision: number) => {
  const record = changes.at(revision);
  if (record === undefined) throw new Error(`revision ${revision} is not remembered`);
  return { ...record.change, ...record, record };
};

test("a record has the changed objects, the source and the times", () => {
  store.apply(
    [
      { kind: "put-service", service: service({ name: "new" }) },
      { kind: "put-slice", slice: slice([endpoint("10.1.0.2")], { triggeredAtMs: 5_000 }) },
      { kind: "delete-node", name: "n1" },
    ],
    { source: "kube", receivedAtMs: 6_000 },
  );
  expect(changeRow(at(2).record)).toMatchObject({
    revision: 2n,
    objects: [
      { kind: ObjectKind.SERVICE, key: "ns/new", isDeleted: false },
      { kind: ObjectKind.ENDPOINTS, key: "ns/web", isDeleted: false },
      { kind: ObjectKind.NODE, key: "n1", isDeleted: true },
    ],
    objectCount: 3n,
    isFirstList: false,
    source: "kube",
    triggeredAt: timestampOf(5_000),
    receivedAt: timestampOf(6_000),
    storedAt: timestampOf(store.snapshot.storedAtMs),
  });
});

test("the record of the first list has no trigger time, and at most 100 objects", () => {
  const services = Array.from({ length: 150 }, (_, index) => service({ name: `s${index}` }));
  const first = new Store();
  first.observe((update) => changes.add(update));
  first.replace({ services, slices: [slice([], { triggeredAtMs: 5_000 })], nodes: [] });
  expect(at(1)).toMatchObject({ isFirstList: true, objectCount: 151n });
  expect(at(1).triggeredAt).toBeUndefined();
  expect(at(1).objects).toHaveLength(100);
});

test("a change is followed to every node: sent, received and applied, with stages that add up to the total", () => {
  const [one, two] = [subscribe("n1"), subscribe("n2")];
  change("a");
  const stored = store.snapshot.storedAtMs;
  nowMs = stored + 10;
  send(one, 1);
  nowMs = stored + 30;
  send(two, 1);
  expect(at(2)).toMatchObject({ toldCount: 2, receivedCount: 0, appliedCount: 0 });
  one.received(2);
  expect(at(2).receivedCount).toBe(1);
  nowMs = stored + 60;
  acknowledge(one, 2, 0, [10, 15, 20]);
  nowMs = stored + 100;
  acknowledge(two, 2, 0, [1, 2, 3]);
  const record = at(2);
  expect(record).toMatchObject({
    ...{ receivedCount: 2, appliedCount: 2, failedCount: 0, lostCount: 0 },
  });
  expect(record.slowest).toMatchObject({
    node: "n2",
    program: "",
    send: durationOf(30),
    transit: durationOf(64),
    timings: { wait: durationOf(1), render: durationOf(2), commit: durationOf(3) },
    total: durationOf(100),
  });
  expect(record.stages?.transit.maxMs).toBe(64);
  expect(record.stages?.commit.maxMs).toBe(20);
});

test("a batch counts for each of its revisions, but not for earlier ones, and a whole view for none", () => {
  const [one, other] = [subscribe("n1"), subscribe("n2")];
  for (const name of ["a", "b", "c"]) change(name);
  send(one, 1);
  acknowledge(one, 4);
  // Revision 2 does not concern it.
  send(other, 2);
  acknowledge(other, 4);
  subscribe("n3");
  const counts = [2, 3, 4].map((revision) => [at(revision).toldCount, at(revision).appliedCount]);
  expect(counts).toEqual([
    [1, 1],
    [2, 2],
    [2, 2],
  ]);
});

test("a node that fails counts once, not per attempt, and no longer when it applies the revision", () => {
  const one = subscribe("n1");
  change("a");
  send(one, 1);
  acknowledge(one, 1, 2);
  acknowledge(one, 1, 2);
  expect(at(2)).toMatchObject({ appliedCount: 0, failedCount: 1 });
  expect(at(2).failures).toMatchObject([{ node: "n1", program: "", error: "nft refused" }]);
  change("b");
  send(one, 2);
  acknowledge(one, 1, 3);
  expect([at(2).failedCount, at(3).failedCount]).toEqual([1, 1]);
  acknowledge(one, 3);
  expect(at(2)).toMatchObject({ toldCount: 1, appliedCount: 1, failedCount: 0 });
  expect(at(3)).toMatchObject({ toldCount: 1, appliedCount: 1, failedCount: 0 });
});

test("relays, people and recorders count as others, and not as nodes", () => {
  const relay = subscribers.make("global", "").open();
  const person = subscribers.make("local", "", true).open();
  const recorder = subscribers.make("global", "").open();
  recorder.introduce(create(SubscriberSchema, { Name: "kpng record", Observes: true }));
  const others = [relay, person, recorder];
  for (const one of others) send(one, 0);
  change("a");
  for (const one of others) send(one, 1);
  relay.received(2);
  for (const one of others) one.close();
  expect(at(2)).toMatchObject({ toldCount: 0, receivedCount: 0, lostCount: 0, otherCount: 3 });
});

test("a subscriber that disconnects before it acknowledges is lost; one that never acknowledges, only without the batch", () => {
  const acknowledging = subscribe("n1");
  const silent = subscribers.make("local", "").open();
  const other = subscribers.make("local", "").open();
  for (const one of [silent, other]) send(one, 0);
  change("a");
  for (const one of [acknowledging, silent, other]) send(one, 1);
  acknowledging.received(2);
  silent.received(2);
  const failing = subscribe("n2");
  change("b");
  send(failing, 2);
  acknowledge(failing, 2, 3);
  for (const one of [acknowledging, silent, other, failing]) one.close();
  expect(at(2)).toMatchObject({ toldCount: 3, receivedCount: 2, lostCount: 2 });
  expect(at(3)).toMatchObject({ toldCount: 1, failedCount: 1, lostCount: 0 });
});

test("the given number of revisions is kept, newest first", () => {
  begin(3);
  const one = subscribe("n1");
  for (const name of ["a", "b", "c", "d"]) change(name);
  expect([...changes.newestFirst()].map(({ revision }) => revision)).toEqual([5, 4, 3]);
  send(one, 1);
  acknowledge(one, 5);
  expect([...changes.newestFirst()].map(({ change: { appliedCount } }) => appliedCount)).toEqual([1, 1, 1]);
});

test("a very late acknowledgement applies all revisions, with the send time of the first", () => {
  const silent = subscribers.make("local", "").open();
  send(silent, 0);
  const beganAtMs = nowMs;
  for (let index = 0; index < 300; index += 1) {
    nowMs += 1;
    const revision = change(`s${index}`);
    send(silent, revision - 1);
    silent.received(revision);
  }
  acknowledge(silent, 301);
  const applied = [...changes.newestFirst()].filter(({ change: { appliedCount } }) => appliedCount === 1);
  expect(applied.map(({ revision }) => revision)).toEqual(Array.from({ length: 300 }, (_, index) => 301 - index));
  expect(at(3).slowest?.send).toEqual(durationOf(beganAtMs - at(3).storedAtMs));
});

test("percentiles are accurate to 15 %, the maximum is exact, and odd durations are counted", () => {
  const of = (times: readonly number[]): Distribution => {
    const distribution = new Distribution();
    for (const ms of times) distribution.add(ms);
    return distribution;
  };
  const times = Array.from({ length: 10_000 }, (_, index) => 0.06 * 1.001 ** index);
  const spread = of(times);
  for (const part of [0.01, 0.5, 0.9, 0.99, 1]) {
    const exact = times[Math.ceil(times.length * part) - 1] ?? 0;
    expect(Math.abs(spread.percentileMs(part) / exact - 1), `${part}`).toBeLessThanOrEqual(0.15);
  }
  expect(spread.maxMs).toBe(times.at(-1));
  // The middle of its bucket is 88.
  expect(of([78, 78, 78]).percentileMs(0.5)).toBe(78);
  expect(of([]).percentileMs(0.5)).toBe(0);
  const odd = of([0, -5, 1e12]);
  expect([odd.count, odd.percentileMs(0.5) < 0.06, odd.maxMs]).toEqual([3, true, 1e12]);
});
