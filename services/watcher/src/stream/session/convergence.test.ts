import { wallClockMs } from "@kpng/process/wall-clock.ts";
import { Registry } from "prom-client";
import { beforeEach, expect, test } from "vitest";
import { Store } from "../../store/store.ts";
import { node } from "../../testing/build.ts";
import type { Projection } from "../delta/projection.ts";
import { Acknowledgement } from "./acknowledgement.ts";
import { observeConvergence } from "./convergence.ts";
import { Subscribers } from "./subscribers.ts";

let store: Store;
let registry: Registry;
let subscribers: Subscribers;

beforeEach(() => {
  store = new Store();
  registry = new Registry();
  subscribers = new Subscribers(registry);
  observeConvergence(store, subscribers, registry);
  store.replace({ services: [], slices: [], nodes: [] });
});

/** A change concerns the subscriber with the name of the changed node, and the subscriber "all". */
function projection(name: string): Projection {
  const changes = (isEmpty: boolean) => ({ isEmpty, frames: () => [] });
  return {
    whole: () => changes(false),
    between: (before, now) => changes(name !== "all" && now.nodes.get(name) === before.nodes.get(name)),
    keys: () => [],
    items: () => [],
    layout: { order: { sections: [], phases: [] }, prefixOf: () => "" },
  };
}

/** A stream that the test drives step by step. */
function open(name: string) {
  const subscriber = subscribers.add("local", "", store);
  const view = projection(name);
  return {
    subscriber,
    /** Compares it with the store, and sends the difference. */
    send: () => {
      const { before, changes, snapshot } = subscriber.subscription.advance(view);
      if (before !== undefined && changes.isEmpty) return;
      subscriber.sent({ after: before?.revision ?? 0, revision: snapshot.revision, computedAtMs: 0, byteCount: 0 });
    },
    ack: (revision = subscriber.sentRevision) => subscriber.acknowledge(new Acknowledgement(revision)),
  };
}

/** A stream that has applied its first view. */
function follow(name: string) {
  const stream = open(name);
  stream.send();
  stream.ack();
  return stream;
}

function change(name: string): void {
  const labels = { revision: String(store.snapshot.revision) };
  store.apply([{ kind: "put-node", node: { ...node(name), labels } }]);
}

/**
 * Number of measured changes, number of revisions that some subscriber has not applied, and longest time in seconds.
 */
async function measured(): Promise<{ count: number; unapplied: number; sumSeconds: number }> {
  const text = await registry.metrics();
  const value = (name: string): number => Number(new RegExp(`^${name} (\\S+)$`, "m").exec(text)?.[1]);
  return {
    count: value("kpng_convergence_seconds_count"),
    unapplied: value("kpng_revisions_unapplied"),
    sumSeconds: value("kpng_convergence_seconds_sum"),
  };
}

test("a change is measured once the last subscriber that it concerns has applied it", async () => {
  const [n1, n2, other] = [follow("all"), follow("all"), follow("other")];
  change("n1");
  for (const each of [n1, n2, other]) each.send();
  n1.ack();
  expect(await measured()).toMatchObject({ count: 0, unapplied: 1 });
  n2.ack();
  expect(await measured()).toMatchObject({ count: 1, unapplied: 0 });
  // No change is measured twice, and none that concerns no subscriber.
  change("n1");
  expect(await measured()).toMatchObject({ count: 1, unapplied: 1 });
  for (const each of [n1, n2]) {
    each.subscriber.close();
  }
  other.send();
  expect(await measured()).toMatchObject({ count: 1, unapplied: 0 });
});

test("the measured time ends with the last acknowledgement, not with the scrape", async () => {
  const n1 = follow("all");
  const beganMs = wallClockMs();
  change("n1");
  n1.send();
  n1.ack();
  const endedMs = wallClockMs();
  await new Promise((resolve) => setTimeout(resolve, 50));
  const { sumSeconds } = await measured();
  expect(sumSeconds).toBeGreaterThan(0);
  expect(sumSeconds * 1_000).toBeLessThanOrEqual(endedMs - beganMs);
});

test("a batch of several revisions counts for each, and a part that is applied counts for its revisions", async () => {
  const [n1, quick] = [follow("all"), follow("all")];
  for (let step = 0; step < 3; step++) {
    change("n1");
    quick.send();
    quick.ack();
  }
  n1.send();
  const part = n1.subscriber.sentRevision;
  change("n1");
  for (const each of [n1, quick]) each.send();
  quick.ack();
  n1.ack(part);
  expect(await measured()).toMatchObject({ count: 3, unapplied: 1 });
  n1.ack();
  expect(await measured()).toMatchObject({ count: 4, unapplied: 0 });
});

test("first lists, first views and subscribers that never acknowledge are not measured", async () => {
  const n1 = follow("all");
  open("all").send();
  const silent = open("all");
  silent.send();
  change("n1");
  for (const each of [n1, silent]) each.send();
  n1.ack();
  expect(await measured()).toMatchObject({ count: 1, unapplied: 0 });
});

test("a subscriber that never catches up needs no more memory than the fixed buffer", async () => {
  const [stuck, quick] = [follow("all"), follow("all")];
  change("n1");
  for (const each of [stuck, quick]) each.send();
  quick.ack();
  for (let step = 0; step < 40_000; step++) {
    store.apply([{ kind: "put-node", node: { ...node("n1"), labels: { step: String(step) } } }]);
    quick.send();
    quick.ack();
  }
  const { count, unapplied } = await measured();
  expect(unapplied).toBe(40_001);
  expect(count).toBeGreaterThan(40_001 - 16_384);
  stuck.send();
  stuck.ack();
  expect(await measured()).toMatchObject({ count: 40_001, unapplied: 0 });
});
