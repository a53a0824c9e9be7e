import { expect, test } from "vitest";
import {
  type ForwardState,
  forwardState,
  judgeOffer,
  type Offer,
  type Position,
  positionKinds,
  untilAcceptedMs,
} from "./forward.ts";

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

function offer(state: ForwardState, position: Position | undefined, nowMs: number, more: Partial<Offer> = {}) {
  return judgeOffer(state, { position, ...more }, { nowMs, acceptAfterMs });
}

test.each([
  { offered: "the same state", position: at(20n), verdict: "apply" },
  { offered: "a later state", position: at(21n), verdict: "apply" },
  { offered: "a version with more digits", position: at(100n), verdict: "apply" },
  { offered: "an earlier state", position: at(19n), verdict: "refuse" },
  { offered: "an earlier version with fewer digits", position: at(9n), verdict: "refuse" },
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
  expect(offer(forwardState(at(20n)), position, 0).verdict).toBe(verdict);
});

test("a later state of a watcher that is stale waits, and one that changes nothing does not", () => {
  const held = forwardState(at(20n));
  expect(offer(held, at(30n), 0, { isStale: true }).verdict).toBe("refuse");
  expect(offer(held, at(30n), 0, { isStale: true, isUnchanged: true })).toEqual({ verdict: "apply", state: held });
  expect(offer(held, at(10n), 0, { isUnchanged: true })).toEqual({ verdict: "apply", state: held });
});

test("a saved position refuses older states of its own cluster, and delays nothing of another one or of a stale watcher", () => {
  const saved = forwardState(at(20n), true);
  expect(offer(saved, at(10n), 0).verdict).toBe("refuse");
  expect(offer(saved, at(10n, { source: "kube:b" }), 0).verdict).toBe("apply");
  expect(offer(saved, at(20n), 0, { isStale: true }).verdict).toBe("apply");
});

test("an earlier state is accepted once nothing newer was offered for the time, counted from the first refusal", () => {
  const refused = offer(forwardState(at(20n)), at(10n), 1_000);
  expect(untilAcceptedMs(refused.state, { nowMs: 2_000, acceptAfterMs })).toBe(59_000);
  expect(offer(refused.state, at(10n), 60_999).verdict).toBe("refuse");
  const accepted = offer(refused.state, at(10n), 61_000);
  expect(accepted).toEqual({ verdict: "accept", state: forwardState(at(10n)) });
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
  const held = forwardState(at(20n));
  const times = (nowMs: number) => ({ nowMs, acceptAfterMs });
  const first = judgeOffer(held, bad, times(0)).state;
  const both = judgeOffer(first, good, times(1_000)).state;
  const again = judgeOffer(both, bad, times(61_000));
  expect(again.verdict).toBe("refuse");
  expect(judgeOffer(again.state, good, times(62_000)).verdict).toBe("accept");
});

test("an earlier state is accepted if a better offer was made long ago: its watcher may be gone", () => {
  const older = offer(forwardState(at(20n)), at(12n), 0).state;
  const rival = offer(older, at(10n), 110_000);
  expect(rival.verdict).toBe("refuse");
  expect(offer(rival.state, at(10n), 121_000).verdict).toBe("accept");
});

test("a state that applies ends the wait: the next earlier one is refused for the whole time again", () => {
  const refused = offer(forwardState(at(20n)), at(10n), 0).state;
  const applied = offer(refused, at(21n), 30_000).state;
  expect(offer(applied, at(10n), 61_000).verdict).toBe("refuse");
});

test("after a long silence, an earlier state is refused for the whole time again", () => {
  const refused = offer(forwardState(at(20n)), at(10n), 0).state;
  const afterSilence = offer(refused, at(10n), 121_000);
  expect(afterSilence.verdict).toBe("refuse");
  expect(offer(afterSilence.state, at(10n), 180_999).verdict).toBe("refuse");
  expect(offer(afterSilence.state, at(10n), 181_000).verdict).toBe("accept");
});

test("whatever is offered, again and again, is accepted after the time at the latest", () => {
  for (const source of ["kube", "kube:a", "kube:b", "instance"]) {
    for (const isStale of [false, true]) {
      for (const kind of positionKinds) {
        const position = at(30n, { source, [kind]: 1n }, 0n);
        const { verdict, state } = offer(forwardState(at(20n)), position, 0, { isStale });
        if (verdict !== "refuse") continue;
        expect(offer(state, position, acceptAfterMs, { isStale }).verdict).toBe("accept");
      }
    }
  }
});
