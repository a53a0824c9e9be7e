import type { OpItem } from "@kpng/model/gen/localv1/api_pb.ts";
import { decodeLocalOp } from "@kpng/model/wire/decode-local.ts";
import { beforeEach, expect, test } from "vitest";
import { deleteService, putEndpoint, putService } from "../testing/ops.ts";
import type { ViewUpdate } from "../types/view-update.ts";
import { ViewBrake } from "./view-brake.ts";
import { ViewState } from "./view-state.ts";

let nowMs: number;
let brake: ViewBrake;
let state: ViewState;

/** Twenty Services with an endpoint each. */
const names = Array.from({ length: 20 }, (_, index) => `ns/s${String(index).padStart(2, "0")}`);
const all = names.flatMap((name) => [putService(name), putEndpoint(`${name}/x`)]);

beforeEach(() => {
  nowMs = 0;
  brake = new ViewBrake({ holdMs: 300_000 }, () => nowMs);
  state = new ViewState("n1", brake);
  apply("one", true, ...all);
});

function apply(instance: string, isReset: boolean, ...ops: OpItem[]): ViewUpdate {
  const changes = ops.map((op) => {
    const decoded = decodeLocalOp(op);
    if (decoded.kind !== "change") throw new Error("only changes");
    return decoded.change;
  });
  return state.apply({ instance, isReset, changes, revision: 1n });
}

test("Services that the empty view of another watcher lacks are kept, and its additions apply", () => {
  const { view, changes } = apply("two", true, putService("ns/new"));
  expect([...view.services.keys()]).toEqual(["ns/new", ...names]);
  expect(changes.map(({ kind }) => kind)).toEqual(["put-service"]);
  expect(brake.kept.size).toBe(20);
});

test("Services whose endpoints the view of another watcher lacks are kept with their endpoints", () => {
  const { view, changes } = apply("two", true, ...names.map((name) => putService(name)));
  expect(view.services.get("ns/s00")?.endpoints).toHaveLength(1);
  expect(changes).toEqual([]);
});

test("a kept Service takes the watcher's value as soon as the watcher has it", () => {
  apply("two", true);
  const [first = "", second = ""] = names;
  const { view, changes } = apply("two", false, putService(first), putEndpoint(`${first}/y`, "10.1.0.9"));
  expect(view.services.get("ns/s00")?.endpoints.map(({ key }) => key)).toEqual(["y"]);
  expect(changes.map(({ kind }) => kind)).toEqual(["put-endpoint", "delete-endpoint"]);
  expect(view.services.has(second as "ns/s01")).toBe(true);
  expect(brake.kept.size).toBe(19);
});

test("after the hold, the newest view applies as it is", () => {
  apply("two", true, putService("ns/new"));
  nowMs = 200_000;
  expect(brake.remainingMs).toBe(100_000);
  const released = state.release();
  expect([...(released?.view.services.keys() ?? [])]).toEqual(["ns/new"]);
  expect(released?.changes).toHaveLength(40);
  expect([brake.kept.size, brake.remainingMs, state.release()]).toEqual([0, undefined, undefined]);
});

test.each([
  ["within 30 s, keeps the Services", 10_000, 20],
  ["after 30 s, deletes the Services", 31_000, 0],
])("a third watcher that confirms %s", (_, atMs, count) => {
  apply("two", true);
  nowMs = atMs;
  expect(apply("three", true).view.services.size).toBe(count);
});

test("deletions by the same run of a watcher apply at once", () => {
  expect(apply("one", false, ...names.map((name) => deleteService(name))).view.services.size).toBe(0);
  expect(apply("one", true).view.services.size).toBe(0);
});

test("a view that lacks a few Services applies at once, also from another watcher", () => {
  const { view } = apply("two", true, ...all.slice(0, 10));
  expect(view.services.size).toBe(5);
});
