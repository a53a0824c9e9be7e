import { expect, test } from "vitest";
import { PendingBatches } from "./pending-batches.ts";

/** Batches of one revision each. */
function pending(count: number): PendingBatches {
  const batches = new PendingBatches();
  for (let revision = 1; revision <= count; revision += 1) batches.add(revision - 1, revision, revision * 1_000);
  return batches;
}

test("batches are received and taken in order, up to a revision", () => {
  const batches = pending(3);
  expect(batches.receiveNext(0)).toBeUndefined();
  expect(batches.receiveNext(2)?.revision).toBe(1);
  expect(batches.receiveNext(2)?.revision).toBe(2);
  expect(batches.receiveNext(2)).toBeUndefined();
  expect([...batches.unreceived()].map(({ revision }) => revision)).toEqual([3]);
  expect([...batches.upTo(2)].map(({ revision }) => revision)).toEqual([1, 2]);
  expect(batches.takeOldest(1)).toEqual({ after: 0, revision: 1, sentAtMs: 1_000 });
  expect(batches.takeOldest(1)).toBeUndefined();
  expect(batches.oldestSentAtMs).toBe(2_000);
  // A batch can be taken without having been received.
  expect(batches.takeOldest(3)?.revision).toBe(2);
  expect(batches.takeOldest(3)?.revision).toBe(3);
  expect([batches.count, batches.oldestSentAtMs, batches.receiveNext(9)]).toEqual([0, undefined, undefined]);
});

test("beyond 128 batches, the oldest are merged into one with the time of the first and the revisions of all", () => {
  const batches = pending(10);
  expect(batches.takeOldest(2)?.revision).toBe(1);
  expect(batches.takeOldest(2)?.revision).toBe(2);
  for (let revision = 11; revision <= 300; revision += 1) batches.add(revision - 1, revision, revision * 1_000);
  expect(batches.count).toBe(128);
  expect(batches.takeOldest(300)).toEqual({ after: 2, revision: 173, sentAtMs: 3_000 });
  expect(batches.takeOldest(300)).toEqual({ after: 173, revision: 174, sentAtMs: 174_000 });
});

test("a whole view adds no revisions to a merged batch", () => {
  const batches = pending(130);
  expect(batches.takeOldest(130)).toEqual({ after: 1, revision: 3, sentAtMs: 1_000 });
});

test("the number of received batches stays correct when batches are merged", () => {
  const batches = pending(128);
  while (batches.receiveNext(100) !== undefined);
  for (let revision = 129; revision <= 140; revision += 1) batches.add(revision - 1, revision, revision);
  expect(batches.receiveNext(140)?.revision).toBe(101);
});
