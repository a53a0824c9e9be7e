import { afterEach, expect, test, vi } from "vitest";
import { changedServices, derived } from "../../store/derived.ts";
import { Store } from "../../store/store.ts";
import { node, service } from "../../testing/build.ts";
import { Rounds } from "./rounds.ts";

/** Numbers of Services that were derived in one piece of work. */
const pieces: number[] = [];

const derivedNames = derived<ReadonlySet<string>>(new Set(), (names, before, snapshot) => {
  const keys = changedServices(before, snapshot);
  pieces.push(keys.length);
  const next = new Set(names);
  for (const key of keys) {
    if (snapshot.services.get(key) === undefined) next.delete(key);
    else next.add(key);
  }
  return next;
});

function names(count: number, port: number) {
  return Array.from({ length: count }, (_, index) => service({ name: `s${index}`, healthCheckNodePort: port }));
}

let stop: () => void = () => undefined;
afterEach(() => stop());

function follow(store: Store): { readonly seen: number[] } {
  const rounds = new Rounds(store);
  rounds.forViews();
  const seen: number[] = [];
  const onRound = (): void => {
    const { snapshot } = rounds;
    if (snapshot.isSynced && snapshot.revision !== seen.at(-1)) {
      seen.push(snapshot.revision);
      expect(derivedNames(snapshot)).toEqual(new Set(snapshot.services.keys()));
    }
    rounds.callNext(onRound);
  };
  onRound();
  stop = () => rounds.cancelNext(onRound);
  return { seen };
}

test("a list of many Services is derived in pieces, and subscribers see no state between", async () => {
  const store = new Store();
  store.replace({ services: names(10_000, 0), slices: [], nodes: [node("n1")] });
  const { seen } = follow(store);
  await vi.waitFor(() => expect(seen).toEqual([1]), { timeout: 30_000 });
  expect(pieces.length).toBeGreaterThan(50);
  expect(Math.max(...pieces)).toBeLessThan(10_000 / 25);

  pieces.length = 0;
  const untilLast = vi.waitFor(() => expect(seen.at(-1)).toBe(4), { timeout: 30_000 });
  store.replace({ services: names(9_000, 1) });
  // A change while the list is prepared waits for it, and is not lost.
  await new Promise((resolve) => setImmediate(resolve));
  store.apply([{ kind: "put-service", service: service({ name: "other" }) }]);
  store.apply([{ kind: "delete-service", key: "ns/s1" }]);
  await untilLast;
  expect(Math.max(...pieces)).toBeLessThan(10_000 / 25);
  expect(seen[0]).toBe(1);
});

test("subscribers advance while lists of many Services follow each other without end", {
  timeout: 60_000,
}, async () => {
  const store = new Store();
  store.replace({ services: names(300, 0), slices: [], nodes: [node("n1")] });
  const { seen } = follow(store);
  for (let port = 1; seen.length < 4; port += 1) {
    store.replace({ services: names(300, port) });
    await new Promise((resolve) => setImmediate(resolve));
  }
});
