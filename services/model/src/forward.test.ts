import { expect, test } from "vitest";
import { ForwardGate, type Offer, type Position, positionKinds } from "./forward.ts";

const acceptAfterMs = 60_000;

/** A state that changed last at `version`, and is current up to it or to `current`. */
function at(version: bigint, fields: Partial<Position> = {}, current = version): Position {
  const known = { services: version, slices: version, nodes: version };
  const position = { source: "kube:a", ...known, ...fields };
  const max = (one: bigint): bigint => (one > current ? one : current);
  const { services, slices, nodes } = position;
  return {
    ...position,
    current: { services: max(services), slices: max(slices), nodes: max(nodes), ...fields.current },
  };
}

/** A gate that holds a state at 20, as applied or only saved, and what it says to offers at some time. */
function gateAt20(isSaved = false) {
  let now = 0;
  const gate = new ForwardGate({ acceptAfterMs, nowMs: () => now });
  if (isSaved) gate.hold(at(20n));
  else gate.admit({ position: at(20n) }).applied();
  const offer = (position: Position | undefined, nowMs: number, more: Partial<Offer> = {}) => {
    now = nowMs;
    const { verdict, applied } = gate.admit({ position, ...more });
    applied();
    return verdict;
  };
  const delayAt = (nowMs: number): number => {
    now = nowMs;
    return gate.retryDelayMs(1_000_000, () => 0);
  };
  return { gate, offer, delayAt };
}

test.each([
  { offered: "the same state", position: at(20n), verdict: "apply" },
  { offered: "a later state", position: at(21n), verdict: "apply" },
  { offered: "an earlier state", position: at(19n), verdict: "refuse" },
  {
    offered: "a state that changed earlier and is current up to the held one",
    position: at(9n, {}, 20n),
    verdict: "apply",
  },
  {
    offered: "a state that changed earlier and is current up to before it",
    position: at(9n, {}, 19n),
    verdict: "refuse",
  },
  { offered: "an earlier version of one kind only", position: at(30n, { slices: 19n }, 0n), verdict: "refuse" },
  { offered: "a later state of another cluster", position: at(30n, { source: "kube:b" }), verdict: "refuse" },
  { offered: "a later state of an unknown cluster", position: at(30n, { source: "kube" }), verdict: "apply" },
  { offered: "an earlier state of an unknown cluster", position: at(1n, { source: "kube" }), verdict: "refuse" },
  { offered: "a state of files", position: at(1n, { source: "instance" }), verdict: "apply" },
  { offered: "a state without a position", position: undefined, verdict: "apply" },
])("after a state at 20, $offered is judged: $verdict", ({ position, verdict }) => {
  expect(gateAt20().offer(position, 0)).toBe(verdict);
});

test("a later state of a watcher that is stale waits, and one that changes nothing does not", () => {
  expect(gateAt20().offer(at(30n), 0, { isStale: true })).toBe("refuse");
  for (const [position, more] of [
    [at(30n), { isStale: true }],
    [at(10n), {}],
  ] as const) {
    const { gate, offer } = gateAt20();
    expect(offer(position, 0, { ...more, isUnchanged: () => true })).toBe("apply");
    expect(gate.held).toEqual(at(20n));
  }
});

test("a saved position refuses older states of its own cluster, and delays nothing of another one or of a stale watcher", () => {
  expect(gateAt20(true).offer(at(10n), 0)).toBe("refuse");
  expect(gateAt20(true).offer(at(10n, { source: "kube:b" }), 0)).toBe("apply");
  expect(gateAt20(true).offer(at(20n), 0, { isStale: true })).toBe("apply");
});

test("an earlier state is accepted once nothing newer was offered for the time, counted from the first refusal", () => {
  const { gate, offer, delayAt } = gateAt20();
  expect(offer(at(10n), 1_000)).toBe("refuse");
  expect(delayAt(2_000)).toBe(59_000);
  expect(offer(at(10n), 60_999)).toBe("refuse");
  expect(offer(at(10n), 61_000)).toBe("accept");
  expect(gate.held).toEqual(at(10n));
  expect(delayAt(62_000)).toBe(1_000_000);
});

test.each([
  { better: "the later one", good: { position: at(12n) }, bad: { position: at(10n) } },
  {
    better: "the one of a watcher that is current",
    good: { position: at(10n) },
    bad: { position: at(30n), isStale: true },
  },
  {
    better: "the one of the same cluster",
    good: { position: at(10n) },
    bad: { position: at(30n, { source: "kube:b" }) },
  },
])("of several states in doubt, only $better is accepted", ({ good, bad }) => {
  const { offer } = gateAt20();
  expect(offer(bad.position, 0, bad)).toBe("refuse");
  expect(offer(good.position, 1_000, good)).toBe("refuse");
  expect(offer(bad.position, 61_000, bad)).toBe("refuse");
  expect(offer(good.position, 62_000, good)).toBe("accept");
});

test("an earlier state is accepted if a better offer was made long ago: its watcher may be gone", () => {
  const { offer } = gateAt20();
  offer(at(12n), 0);
  expect(offer(at(10n), 110_000)).toBe("refuse");
  expect(offer(at(10n), 121_000)).toBe("accept");
});

test("a state that applies ends the wait: the next earlier one is refused for the whole time again", () => {
  const { offer } = gateAt20();
  offer(at(10n), 0);
  expect(offer(at(21n), 30_000)).toBe("apply");
  expect(offer(at(10n), 61_000)).toBe("refuse");
});

test("after a long silence, an earlier state is refused for the whole time again", () => {
  const { offer } = gateAt20();
  offer(at(10n), 0);
  expect(offer(at(10n), 121_000)).toBe("refuse");
  expect(offer(at(10n), 180_999)).toBe("refuse");
  expect(offer(at(10n), 181_000)).toBe("accept");
});

test("whatever is offered, again and again, is accepted after the time at the latest", () => {
  for (const source of ["kube", "kube:a", "kube:b", "instance"]) {
    for (const isStale of [false, true]) {
      for (const kind of positionKinds) {
        const position = at(30n, { source, [kind]: 1n }, 0n);
        const { offer } = gateAt20();
        if (offer(position, 0, { isStale }) === "refuse") {
          expect(offer(position, acceptAfterMs, { isStale })).toBe("accept");
        }
      }
    }
  }
});
