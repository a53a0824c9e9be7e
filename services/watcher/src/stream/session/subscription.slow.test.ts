import { makeRandom } from "@kpng/process/testing/random.ts";
import { describe, expect, test } from "vitest";
import type { Frame } from "../../items/frames.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { Store } from "../../store/store.ts";
import { node } from "../../testing/build.ts";
import { expectedItems } from "../../testing/expected-items.ts";
import { randomChange } from "../../testing/random-change.ts";
import { globalProjection } from "../delta/global-projection.ts";
import { nodeProjection } from "../delta/node-projection.ts";
import type { Projection } from "../delta/projection.ts";
import { opsIn } from "../serve/watch-ops.ts";
import { Subscription } from "./rounds.ts";

/** A projection, and the frames of all items that it shows of a snapshot. */
interface Choice {
  readonly projection: Projection;
  expected(snapshot: Snapshot): Iterable<Frame>;
}

const local = (nodeName: string, isExtended: boolean): Choice => {
  const request = { nodeName, proxyName: "", isExtended, wantsNode: isExtended };
  return {
    projection: nodeProjection(request),
    expected: (snapshot) => [...expectedItems(snapshot, request)].map(({ frame }) => frame),
  };
};

const relay = (isExtended: boolean): Choice => {
  const projection = globalProjection({ isExtended, proxyName: "" });
  return { projection, expected: (snapshot) => projection.whole(snapshot).frames() };
};

const projections: readonly (readonly [string, Choice])[] = [
  ["a node", local("n1", true)],
  ["a node of KPNG's kind", local("n2", false)],
  ["a relay", relay(true)],
  ["a relay of KPNG's kind", relay(false)],
];

describe("after random changes, a subscriber holds exactly the view of the state", () => {
  test.each(projections)("%s", (_, choice) => {
    for (let seed = 1; seed <= 30; seed += 1) follow(seed, choice);
  });
});

function follow(seed: number, choice: Choice): void {
  const random = makeRandom(seed);
  const store = new Store();
  store.replace({ services: [], slices: [], nodes: [] });
  const subscription = new Subscription(store);
  const held = new Map<string, string>();
  for (let step = 0; step < 40; step += 1) {
    store.apply(Array.from({ length: Math.floor(random() * 4) }, () => randomChange(random)));
    const { projection, expected: expectedFrames } = choice;
    for (const piece of subscription.advance(projection).changes.frames()) {
      for (const { Op: op } of opsIn(piece)) {
        if (op.case === "Reset") held.clear();
        else if (op.case === "Set") held.set(`${op.value.Ref?.Set} ${op.value.Ref?.Path}`, show(op.value.Bytes));
        else if (op.case === "Delete") expect(held.delete(`${op.value.Set} ${op.value.Path}`)).toBe(true);
      }
    }
    const expected = new Map<string, string>();
    for (const frame of expectedFrames(store.snapshot)) {
      for (const { Op: op } of opsIn(frame)) {
        if (op.case === "Set") expected.set(`${op.value.Ref?.Set} ${op.value.Ref?.Path}`, show(op.value.Bytes));
      }
    }
    expect(held, `seed ${seed}, step ${step}`).toEqual(expected);
  }
}

function show(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("hex");
}

test("a change outside the view gives an empty batch", () => {
  const store = new Store();
  store.replace({ services: [], slices: [], nodes: [node("n1")] });
  const subscription = new Subscription(store);
  const { projection } = local("n1", false);
  expect(subscription.advance(projection).before).toBeUndefined();
  store.apply([{ kind: "put-node", node: node("n2") }]);
  expect(subscription.advance(projection).changes.isEmpty).toBe(true);
  expect(subscription.revision).toBe(store.snapshot.revision);
});
