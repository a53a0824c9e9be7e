import { expect, test } from "vitest";
import { type ForwardState, forwardState, judgeOffer, untilAcceptedMs } from "./judge-offer.ts";
import type { Position, PositionAnswer } from "./position.ts";

const acceptAfterMs = 60_000;

const at = (version: bigint, fields: Partial<Position> = {}): Position => ({
  source: "kube",
  epoch: 1n,
  services: version,
  slices: version,
  nodes: version,
  ...fields,
});

function offer(state: ForwardState, offered: Position | undefined, atMs: number, answer?: PositionAnswer) {
  return judgeOffer(state, { offered, answer, offeredAtMs: atMs, nowMs: atMs, acceptAfterMs });
}

test.each([
  { offered: "the same state", position: at(20n), verdict: "apply" },
  { offered: "a later state", position: at(21n), verdict: "apply" },
  { offered: "a version with more digits", position: at(100n), verdict: "apply" },
  { offered: "an earlier state", position: at(19n), verdict: "refuse" },
  { offered: "an earlier version with fewer digits", position: at(9n), verdict: "refuse" },
  { offered: "an earlier version of one kind only", position: at(30n, { slices: 19n }), verdict: "refuse" },
  { offered: "lower versions in a later epoch", position: at(5n, { epoch: 2n }), verdict: "refuse" },
  { offered: "higher versions in an earlier epoch", position: at(30n, { epoch: 0n }), verdict: "refuse" },
  { offered: "a state of another source", position: at(1n, { source: "file" }), verdict: "apply" },
  { offered: "a state without a position", position: undefined, verdict: "apply" },
])("after a state of epoch 1 at 20, $offered is judged: $verdict", ({ position, verdict }) => {
  expect(offer(forwardState(at(20n)), position, 0).verdict).toBe(verdict);
});

test("an earlier state applies if its watcher vouches for it, and not if the watcher has moved on since", () => {
  const held = forwardState(at(20n));
  expect(offer(held, at(10n), 0, { state: at(10n), covers: true }).verdict).toBe("apply");
  expect(offer(held, at(10n), 0, { state: at(10n), covers: false }).verdict).toBe("refuse");
  expect(offer(held, at(10n), 0, { state: at(25n), covers: true }).verdict).toBe("refuse");
});

test("an earlier state is accepted once nothing newer was offered for the time, counted from the first refusal", () => {
  const refused = offer(forwardState(at(20n)), at(10n), 1_000);
  expect(untilAcceptedMs(refused.state, { nowMs: 2_000, acceptAfterMs })).toBe(59_000);
  expect(offer(refused.state, at(10n), 60_999).verdict).toBe("refuse");
  const accepted = offer(refused.state, at(10n), 61_000);
  expect(accepted).toEqual({ verdict: "accept", state: forwardState(at(10n)) });
});

test("of several earlier states, only the newest is accepted", () => {
  const older = offer(forwardState(at(20n)), at(10n), 0).state;
  const both = offer(older, at(12n), 1_000).state;
  const again = offer(both, at(10n), 61_000);
  expect(again.verdict).toBe("refuse");
  expect(offer(again.state, at(12n), 62_000).verdict).toBe("accept");
});

test("an earlier state is accepted if a newer offer was made long ago: its watcher may be gone", () => {
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
