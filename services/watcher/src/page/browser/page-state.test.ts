import { describe, expect, test } from "vitest";
import type { LiveChange, LiveFrame, LiveNode, LiveStatus } from "../live/live-rows.ts";
import { PageState } from "./page-state.ts";

const status: LiveStatus = {
  nowMs: 1_000,
  instance: "a",
  startedAtMs: 0,
  revision: 1,
  storedAtMs: 900,
  isSynced: true,
  missingKinds: [],
  serviceCount: 0,
  sliceCount: 0,
  endpointCount: 0,
  nodeCount: 0,
  states: { current: 0, received: 0, behind: 0, failing: 0, absent: 0, unknown: 0 },
  relayCount: 0,
  observerCount: 0,
  maxLagMs: 0,
};

function frame(fields: Partial<LiveFrame>, revision = 1): LiveFrame {
  return {
    isWhole: false,
    status: { ...status, revision },
    nodes: [],
    goneNodes: [],
    changes: [],
    history: [],
    services: [],
    goneServices: [],
    mustListServices: false,
    ...fields,
  };
}

const change = (revision: number): LiveChange => ({
  revision,
  objects: [],
  objectCount: 0,
  isFirstList: false,
  source: "",
  receivedAtMs: 0,
  storedAtMs: revision,
  sentCount: 0,
  appliedCount: 0,
  failedCount: 0,
  lostCount: 0,
  failures: [],
});

const web = { namespace: "ns", name: "web" };

describe("the state of the page", () => {
  test("a Service that changes while the list is on its way keeps its newer row", () => {
    const state = new PageState();
    state.beginServices();
    state.apply(frame({ services: [{ ...web, type: "new" }], goneServices: ["ns/old"] }, 5));
    state.applyServices(
      [
        { ...web, type: "stale" },
        { namespace: "ns", name: "old" },
      ],
      4,
    );
    expect([...state.services]).toEqual([["ns/web", { ...web, type: "new" }]]);
  });

  test("a list replaces Services that it lacks", () => {
    const state = new PageState();
    state.apply(frame({ services: [web] }, 3));
    state.beginServices();
    state.applyServices([{ namespace: "ns", name: "dns" }], 4);
    expect([...state.services.keys()]).toEqual(["ns/dns"]);
  });

  test("a whole frame replaces nodes and changes, a later one adds to them", () => {
    const state = new PageState();
    const node = (name: string) => ({ name }) as LiveNode;
    state.apply(frame({ isWhole: true, nodes: [node("n1"), node("n2")], changes: [change(1)] }));
    state.apply(frame({ nodes: [node("n3")], goneNodes: ["n1"], changes: [change(2)] }));
    expect([...state.nodes.keys()]).toEqual(["n2", "n3"]);
    expect([...state.changes.keys()]).toEqual([1, 2]);
    state.apply(frame({ isWhole: true, nodes: [node("n9")] }));
    expect([[...state.nodes.keys()], state.changes.size]).toEqual([["n9"], 0]);
  });

  test("only the newest 50 changes are kept, whatever their order", () => {
    const state = new PageState();
    for (let revision = 1; revision <= 80; revision += 1) state.apply(frame({ changes: [change(revision)] }));
    state.apply(frame({ changes: [change(31)] }));
    expect(Math.min(...state.changes.keys())).toBe(31);
    expect(state.changes.size).toBe(50);
  });
});
