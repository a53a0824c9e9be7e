import { service } from "@kpng/source/testing/build.ts";
import { beforeEach, expect, test } from "vitest";
import { Store } from "../../store/store.ts";
import { Rounds } from "./rounds.ts";
import { Scheduler } from "./scheduler.ts";

let store: Store;
let rounds: Rounds;
let scheduler: Scheduler;

beforeEach(() => {
  store = new Store();
  store.replace({ services: [], slices: [], nodes: [] });
  scheduler = new Scheduler();
  rounds = new Rounds(store, scheduler);
});

function change(): void {
  store.apply([{ kind: "put-service", service: service({ name: `s${store.snapshot.revision}` }) }]);
}

/** A subscriber that advances to the target snapshot whenever it changes, and calls `before` each time. */
function follow(before: () => void = () => undefined): { readonly seen: number[]; stop(): void } {
  const seen = [rounds.snapshot.revision];
  const onRound = (): void => {
    if (rounds.snapshot.revision === seen.at(-1)) {
      rounds.callNext(onRound);
      return;
    }
    scheduler.schedule("update", () => {
      before();
      seen.push(rounds.snapshot.revision);
      onRound();
    });
  };
  onRound();
  return { seen, stop: () => rounds.cancelNext(onRound) };
}

/** Waits until no work is scheduled. */
async function quiet(): Promise<void> {
  for (let index = 0; index < 200; index += 1) await new Promise((resolve) => setImmediate(resolve));
}

test("between rounds, the newest snapshot is the target immediately", async () => {
  const one = follow();
  expect(rounds.snapshot).toBe(store.snapshot);
  change();
  expect(rounds.snapshot).toBe(store.snapshot);
  await quiet();
  change();
  await quiet();
  expect(one.seen).toEqual([1, 2, 3]);
});

test("all subscribers advance between the same two snapshots, whatever changes during the round", async () => {
  const untilMs = (ms: number): void => {
    const end = performance.now() + ms;
    while (performance.now() < end);
  };
  let changes = 0;
  const all = Array.from({ length: 20 }, () =>
    follow(() => {
      untilMs(3);
      if (changes === 8) return;
      changes += 1;
      change();
    }),
  );
  change();
  await quiet();
  const [first] = all;
  for (const { seen } of all) expect(seen).toEqual(first?.seen);
  expect(first?.seen.at(-1)).toBe(store.snapshot.revision);
  expect(first?.seen.length).toBeLessThan(5);
});

test("a subscriber that joins during a round advances to the snapshot of the round", async () => {
  let late: ReturnType<typeof follow> | undefined;
  const one = follow(() => {
    if (late !== undefined) return;
    change();
    late = follow();
  });
  change();
  await quiet();
  expect(one.seen).toEqual([1, 2, 3]);
  expect(late?.seen).toEqual([2, 3]);
});

test("a subscriber that cancels leaves no callback", async () => {
  const [one, two] = [follow(), follow()];
  expect(store.waitingCount).toBe(1);
  change();
  await quiet();
  expect(store.waitingCount).toBe(1);
  one.stop();
  expect(store.waitingCount).toBe(1);
  two.stop();
  expect(store.waitingCount).toBe(0);
  change();
  await quiet();
  expect(rounds.snapshot).toBe(store.snapshot);
});
