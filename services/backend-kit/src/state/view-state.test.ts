import type { OpItem } from "@kpng/model/gen/localv1/api_pb.ts";
import { decodeLocalOp } from "@kpng/model/wire/local-message.ts";
import { makeRandom, makeRandomBelow } from "@kpng/process/random.ts";
import { expect, test } from "vitest";
import { deleteEndpoint, deleteService, putEndpoint, putNode, putService } from "../testing/ops.ts";
import { BackendError } from "../types/backend-error.ts";
import type { Batch } from "../types/sync-update.ts";
import { SortedMap } from "./sorted-map.ts";
import { ViewState } from "./view-state.ts";

function batch(isReset: boolean, ...ops: OpItem[]): Batch {
  const changes = ops.map((op) => {
    const decoded = decodeLocalOp(op);
    if (decoded.kind !== "change") throw new Error("only changes");
    return decoded.change;
  });
  return { isReset, changes, revision: 0n, instance: "" };
}

const start = [
  putNode("n1"),
  putService("a/web"),
  putService("b/web"),
  putEndpoint("a/web/x", "10.1.0.1"),
  putEndpoint("a/web/y", "10.1.0.2"),
];

/** `changes`: touched Services, then the numbers of changed Services and endpoints. */
const cases: { name: string; batches: Batch[]; changes: (string | number)[] }[] = [
  {
    name: "the first batch touches everything",
    batches: [batch(true, ...start)],
    changes: ["a/web", "b/web", 2, 2],
  },
  {
    name: "the same view after a Reset changes nothing",
    batches: [batch(true, ...start), batch(true, ...start)],
    changes: [0, 0],
  },
  {
    name: "after a Reset, what the new stream does not have is deleted and only what differs is put",
    batches: [
      batch(true, ...start),
      batch(
        true,
        putService("a/web", "10.0.0.9"),
        putEndpoint("a/web/y", "10.1.0.2"),
        putEndpoint("a/web/z", "10.1.0.3"),
      ),
    ],
    changes: ["a/web", "b/web", 2, 2],
  },
  {
    name: "an empty view after a Reset deletes everything",
    batches: [batch(true, ...start), batch(true)],
    changes: ["a/web", "b/web", 2, 2],
  },
  {
    name: "a put of what is there already is no change",
    batches: [batch(true, ...start), batch(false, putService("a/web"), putEndpoint("a/web/x", "10.1.0.1"))],
    changes: [0, 0],
  },
  {
    name: "a delete of what is not there is no change",
    batches: [
      batch(true, ...start),
      batch(false, deleteEndpoint("a/web/q"), deleteEndpoint("q/q/q"), deleteService("q/q")),
    ],
    changes: [0, 0],
  },
  {
    name: "of a put and a delete of the same key in one batch the last one counts",
    batches: [
      batch(true, ...start),
      batch(false, putEndpoint("a/web/z"), deleteEndpoint("a/web/z"), deleteEndpoint("a/web/x")),
    ],
    changes: ["a/web", 0, 1],
  },
  {
    name: "a Service deleted without its endpoints takes them along",
    batches: [batch(true, ...start), batch(false, deleteService("a/web"))],
    changes: ["a/web", 1, 2],
  },
  {
    name: "a Service deleted and put again in one batch has no endpoints of before",
    batches: [
      batch(true, ...start),
      batch(false, deleteService("a/web"), putService("a/web"), putEndpoint("a/web/y", "10.1.0.2")),
    ],
    changes: ["a/web", 0, 1],
  },
];

test.each(cases)("$name", ({ batches, changes }) => {
  const state = new ViewState("n1");
  const updates = batches.map((each) => state.apply(each));
  const { touched = [], counts } = updates.at(-1) ?? {};
  expect([...[...touched].sort(), counts?.services, counts?.endpoints]).toEqual(changes);
  expect(updates.map((update) => update.isFirst)).toEqual(batches.map((_, index) => index === 0));
});

test("an endpoint without its Service refuses the whole batch and leaves the view as it was", () => {
  const state = new ViewState("n1");
  const { view } = state.apply(batch(true, ...start));
  expect(() => state.apply(batch(false, deleteService("b/web"), putEndpoint("b/web/x")))).toThrow(BackendError);
  expect(() => state.apply(batch(true, putEndpoint("a/web/x")))).toThrow("a Service that it has not sent");
  expect(state.view).toBe(view);
  expect([...state.view.services.keys()]).toEqual(["a/web", "b/web"]);
});

test("Services and endpoints that do not change stay the same objects, through a Reset too", () => {
  const state = new ViewState("n1");
  const first = state.apply(batch(true, ...start)).view;
  const second = state.apply(batch(true, ...start.slice(0, 4), putEndpoint("a/web/y", "10.9.9.9"))).view;
  expect(second.services.get("b/web")).toBe(first.services.get("b/web"));
  expect(second.services.get("a/web")).not.toBe(first.services.get("a/web"));
  expect(second.services.get("a/web")?.endpoints[0]).toBe(first.services.get("a/web")?.endpoints[0]);
  expect(first.services.get("a/web")?.endpoints[1]?.addresses.v4).toEqual(["10.1.0.2"]);
});

test("Services and endpoints ascend by key whatever the order of their arrival", () => {
  const state = new ViewState("n1");
  const { view } = state.apply(
    batch(true, putService("b/b"), putService("a/z"), putService("a/a"), putEndpoint("a/a/2"), putEndpoint("a/a/1")),
  );
  expect([...view.services.keys()]).toEqual(["a/a", "a/z", "b/b"]);
  expect(view.services.get("a/a")?.endpoints.map((endpoint) => endpoint.key)).toEqual(["1", "2"]);
});

test("a map changed at random holds what a plain map holds, in ascending order", () => {
  const random = makeRandomBelow(makeRandom(1));
  let sorted = SortedMap.from<string, number>([]);
  const plain = new Map<string, number>();
  for (let round = 0; round < 300; round++) {
    const changes = new Map<string, number | undefined>();
    const count = random(round % 50 === 0 ? 800 : 8);
    for (let i = 0; i < count; i++) changes.set(`k${random(2_000)}`, random(3) === 0 ? undefined : random(1_000));
    const before = [...sorted];
    const after = sorted.with(changes);
    for (const [key, value] of changes) value === undefined ? plain.delete(key) : plain.set(key, value);
    const expected = [...plain].sort(([a], [b]) => (a < b ? -1 : 1));
    expect([...after]).toEqual(expected);
    expect(after.size).toBe(plain.size);
    expect([...sorted], "the map before is untouched").toEqual(before);
    sorted = after;
  }
  for (let i = 0; i < 2_000; i++) expect(sorted.get(`k${i}`)).toBe(plain.get(`k${i}`));
});
