import { Registry } from "prom-client";
import { describe, expect, test } from "vitest";
import { Store } from "../../store/store.ts";
import { Subscribers } from "./subscribers.ts";

describe("the measured time from a batch to its acknowledgement", () => {
  let nowMs = 0;
  const registry = new Registry();
  const subscribers = new Subscribers(new Store(), registry, () => nowMs);
  const subscriber = subscribers.make("local", "").open();
  const send = (atMs: number, revision: number): void => {
    nowMs = atMs;
    subscriber.sent({ after: revision - 1, revision, byteCount: 1 });
  };
  const seconds = async (): Promise<[sum: number, count: number]> => {
    const metric = await registry.getSingleMetric("kpng_apply_seconds")?.get();
    const value = (name: string) =>
      metric?.values.find((one) => (one as { metricName?: string }).metricName?.endsWith(name))?.value ?? Number.NaN;
    return [value("_sum"), value("_count")];
  };

  test("is that of each batch, however late the acknowledgement arrives", async () => {
    send(1_000, 1);
    send(2_000, 2);
    send(3_000, 3);
    expect(subscriber.unappliedSinceMs).toBe(1_000);
    nowMs = 5_000;
    const earlier = [
      { applied: 1, ageMs: 3_990 },
      { applied: 2, ageMs: 2_990 },
    ];
    subscriber.acknowledge({ applied: 3, ageMs: 1_990, earlier });
    const [sum, count] = await seconds();
    expect(sum).toBeCloseTo(0.03);
    expect(count).toBe(3);
  });

  test("begins with the oldest batch that is not applied, and excludes batches applied before they were sent", async () => {
    send(6_000, 4);
    send(7_000, 5);
    subscriber.acknowledge({ applied: 4 });
    expect(subscriber.unappliedSinceMs).toBe(7_000);
    nowMs = 7_500;
    subscriber.acknowledge({ applied: 5, ageMs: 60_000 });
    expect(subscriber.unappliedSinceMs).toBeUndefined();
    expect((await seconds())[1]).toBe(4);
  });
});

test("metrics count subscribers that fail, and the age of the oldest batch that is not applied", async () => {
  const registry = new Registry();
  let nowMs = 1_000;
  const subscriber = new Subscribers(new Store(), registry, () => nowMs).make("local", "").open();
  const metrics = async () => {
    const names = ["kpng_subscribers_failing", "kpng_oldest_unapplied_seconds"];
    const values = names.map(async (name) => (await registry.getSingleMetric(name)?.get())?.values[0]?.value);
    return await Promise.all(values);
  };
  subscriber.sent({ after: 0, revision: 1, byteCount: 1 });
  nowMs = 3_000;
  subscriber.acknowledge({ applied: 0, failed: 1, error: "line 7 was refused" });
  expect(await metrics()).toEqual([1, 2]);
  expect(subscriber.failure).toEqual({ revision: 1, error: "line 7 was refused" });
  subscriber.acknowledge({ applied: 1 });
  expect(await metrics()).toEqual([0, 0]);
  expect(subscriber.failure).toBeUndefined();
});

test("a client that never acknowledges has not applied what it has not received, and an observer need not read", () => {
  const subscribers = new Subscribers(new Store(), new Registry(), () => 1_000);
  const [client, observer] = [subscribers.make("local", "").open(), subscribers.make("local", "", true).open()];
  for (const one of [client, observer]) one.sent({ after: 0, revision: 7, byteCount: 1 });
  expect([client.unappliedSinceMs, observer.unappliedSinceMs]).toEqual([1_000, undefined]);
  client.received(7);
  expect(client.unappliedSinceMs).toBeUndefined();
  // It has asked for another node, and gets another view of the same revision.
  client.sent({ after: 0, revision: 7, byteCount: 1 });
  expect(client.unappliedSinceMs).toBe(1_000);
  client.received(7);
  expect(client.unappliedSinceMs).toBeUndefined();
});

test("another view of an applied revision counts as applied only when it is acknowledged", () => {
  const subscriber = new Subscribers(new Store(), new Registry(), () => 1_000).make("local", "").open();
  const send = (): void => subscriber.sent({ after: 0, revision: 7, byteCount: 1 });
  send();
  subscriber.acknowledge({ applied: 7 });
  // It requested another view in the meantime.
  send();
  expect(subscriber.unappliedSinceMs).toBe(1_000);
  subscriber.acknowledge({ applied: 7 });
  expect(subscriber.unappliedSinceMs).toBeUndefined();
});

test("a batch counts as sent when it is written; a revision that does not concern the subscriber counts at once", () => {
  const seen: string[] = [];
  const subscribers = new Subscribers(new Store(), new Registry());
  subscribers.observe({
    sent: (followed, { revision }) => seen.push(`sent ${revision} of ${followed.sentRevision}`),
    received: (followed, { revision }) => seen.push(`received ${revision} of ${followed.receivedRevision}`),
    applied: (followed, { revision }) => seen.push(`applied ${revision} of ${followed.appliedRevision}`),
    lost: (_, { revision }) => seen.push(`lost ${revision}`),
  });
  const subscriber = subscribers.make("local", "").open();
  const send = (revision: number): void => {
    subscriber.sent({ after: revision - 1, revision, byteCount: 1 });
    subscriber.received(revision);
  };
  const revisions = () => [subscriber.upToDateRevision, subscriber.receivedRevision, subscriber.appliedRevision];

  send(1);
  subscriber.acknowledge({ applied: 1 });
  expect(revisions()).toEqual([1, 1, 1]);

  send(2);
  expect(revisions()).toEqual([2, 2, 1]);
  subscriber.acknowledge({ applied: 2 });

  subscriber.skipped(3);
  expect(revisions()).toEqual([3, 3, 3]);
  subscriber.sent({ after: 3, revision: 4, byteCount: 1 });
  expect(revisions()).toEqual([4, 3, 3]);
  subscriber.close();
  expect(() => subscriber.received(5)).toThrow("Received names revision 5, but the last revision sent is 4");
  expect(() => subscriber.acknowledge({ applied: 5 })).toThrow("Ack names revision 5, but the last revision sent is 4");
  const each = (revision: number) =>
    ["sent", "received", "applied"].map((what) => `${what} ${revision} of ${revision}`);
  expect(seen).toEqual([...each(1), ...each(2), "sent 4 of 4", "lost 4"]);
});
