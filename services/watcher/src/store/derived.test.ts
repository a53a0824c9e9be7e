import { service } from "@kpng/source/testing/build.ts";
import { expect, test } from "vitest";
import { Between, changedServices, Derived } from "./derived.ts";
import { emptySnapshot, type Snapshot } from "./snapshot.ts";
import { Store } from "./store.ts";

/** Snapshots of one store, each with one more Service. */
function grow(count: number): Snapshot[] {
  const store = new Store();
  return Array.from({ length: count }, (_, index) => {
    store.apply([{ kind: "put-service", service: service({ name: `s${index}` }) }]);
    return store.snapshot;
  });
}

/** Names of the Services, and which of them were recomputed. */
function names() {
  const looked: string[][] = [];
  const of = Derived.atOnce<readonly string[]>([], (listed, before, snapshot) => {
    const changed = changedServices(before, snapshot);
    looked.push([...changed]);
    const others = listed.filter((name) => !changed.includes(name));
    return [...others, ...changed.filter((key) => snapshot.services.get(key) !== undefined)].sort();
  });
  return { of, looked };
}

test("each snapshot has its own value, in any order of requests", () => {
  const [first, second, third] = grow(3);
  const { of, looked } = names();
  for (const [snapshot, count] of [
    [third, 3],
    [first, 1],
    [emptySnapshot, 0],
    [second, 2],
    [third, 3],
  ] as const) {
    expect(of.at(snapshot as Snapshot)).toHaveLength(count);
  }
  expect(looked).toHaveLength(3);
});

test("the next value is derived from the newest, even after a request for an older snapshot", () => {
  const [first, second, third, fourth] = grow(4) as [Snapshot, Snapshot, Snapshot, Snapshot];
  const { of, looked } = names();
  of.at(first);
  of.at(third);
  of.at(second);
  of.at(emptySnapshot);
  of.at(fourth);
  expect(looked.at(-1)).toEqual(["ns/s3"]);
});

test("the value of a pair is made once while few other pairs are requested", () => {
  const [first, second, ...others] = grow(44) as [Snapshot, Snapshot, ...Snapshot[]];
  let made = 0;
  const count = new Between((before, snapshot) => {
    made += 1;
    return snapshot.revision - before.revision;
  });
  for (const before of [emptySnapshot, first, emptySnapshot]) count.of(before, second);
  expect(made).toBe(2);
  for (const snapshot of others) {
    expect(count.of(first, snapshot)).toBe(snapshot.revision - first.revision);
    count.of(first, second);
  }
  expect(made).toBe(44);
  count.of(emptySnapshot, second);
  expect(made).toBe(45);
});

test("callers advance the same computation; a newer value waits for it and is derived from it", () => {
  const [first, second] = grow(2) as [Snapshot, Snapshot];
  const begun: number[] = [];
  const count = new Derived(0, function* (value, before, snapshot) {
    begun.push(before.revision);
    yield;
    yield;
    return value + changedServices(before, snapshot).length;
  });
  const [one, other] = [count.steps(first), count.steps(first)];
  for (const steps of [one, other]) expect(steps.next().done).toBe(false);
  expect(count.at(second)).toBe(2);
  expect(begun).toEqual([0, 1]);
  expect([one.next().done, other.next().done, count.at(first)]).toEqual([true, true, 1]);
});

test("a computation that throws is begun again by the next caller", () => {
  const [first] = grow(1) as [Snapshot];
  let hasFailed = false;
  const count = new Derived(0, function* (value) {
    yield;
    if (!hasFailed) {
      hasFailed = true;
      throw new Error("no memory");
    }
    return value + 1;
  });
  expect(() => count.at(first)).toThrow("no memory");
  expect(count.at(first)).toBe(1);
});
