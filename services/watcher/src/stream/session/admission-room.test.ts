import { makeRandom } from "@kpng/process/testing/random.ts";
import { describe, expect, test } from "vitest";
import { AdmissionRoom, type AdmissionTicket, type Entry } from "./admission-room.ts";

/** A room with a clock of its own; chance is always in the middle. */
function makeRoom(maxWaitMs: number, random = () => 0.5) {
  let nowMs = 0;
  const room = new AdmissionRoom({ maxWaitMs, nowMs: () => nowMs, random });
  const pass = (ms: number): void => {
    nowMs += ms;
  };
  const enter = (): AdmissionTicket => {
    const entry = room.enter();
    if (entry.kind !== "admitted") throw new Error(`full: ${entry.pushbackMs} ms`);
    return entry.ticket;
  };
  /** Enters until there is no room. */
  const fill = (): AdmissionTicket[] => {
    const tickets: AdmissionTicket[] = [];
    for (let entry: Entry = room.enter(); entry.kind === "admitted"; entry = room.enter()) tickets.push(entry.ticket);
    return tickets;
  };
  /** Lets so many be served, each in this time. */
  const serve = (count: number, costMs: number): void => {
    for (let served = 0; served < count; served++) {
      const ticket = enter();
      pass(costMs);
      ticket.done();
    }
  };
  return { room, pass, enter, fill, serve };
}

function pushbackOf(entry: Entry): number {
  if (entry.kind !== "full") throw new Error("there was room");
  return entry.pushbackMs;
}

describe("room", () => {
  test.each([
    { costMs: 10, tickets: 1_000 },
    { costMs: 100, tickets: 100 },
    { costMs: 5_000, tickets: 16 },
    { costMs: 0, tickets: 10_000 },
  ])("is for as many as can be served in time: $tickets at $costMs ms each", ({ costMs, tickets }) => {
    const { serve, fill } = makeRoom(10_000);
    serve(200, costMs);
    expect(fill().length / tickets).toBeCloseTo(1, 1);
  });

  test("has no end without a limit", () => {
    const { serve, enter, room } = makeRoom(0);
    serve(10, 1_000);
    for (let count = 0; count < 5_000; count++) enter();
    expect(room.size).toBe(5_000);
  });

  test("is free again when a first batch is complete or its stream is over, once", () => {
    const { fill, enter, pass } = makeRoom(1_000);
    const [a, b] = fill();
    pass(5);
    a?.done();
    a?.close();
    enter();
    expect(enter).toThrow("full");
    b?.close();
    b?.done();
    enter();
    expect(enter).toThrow("full");
  });

  test("is not kept by readers that take nothing, but by those that wait for us", () => {
    const { fill, enter, pass, room } = makeRoom(1_000);
    const tickets = fill();
    for (const ticket of tickets.slice(0, 3)) ticket.wrote();
    pass(10_001);
    tickets[0]?.wrote();
    enter();
    expect(room.size).toBe(tickets.length - 1);
  });
});

describe("who finds no room", () => {
  test("comes one after the other, as fast as they can be served, when there may be room", () => {
    const { serve, fill, room } = makeRoom(2_000);
    serve(200, 20);
    const { length } = fill();
    const pushbacks = Array.from({ length: 50 }, () => pushbackOf(room.enter()));
    // One was told before, by `fill`.
    expect(pushbacks[0]).toBeCloseTo((length * 20) / 2 + 20, -1);
    for (const [index, pushback] of pushbacks.entries()) {
      if (index > 0) expect(pushback - (pushbacks[index - 1] ?? 0)).toBeCloseTo(20, 0);
    }
  });

  test("is not told to come before those that were told before", () => {
    const { serve, fill, room, pass } = makeRoom(2_000);
    serve(200, 20);
    fill();
    for (let count = 0; count < 500; count++) room.enter();
    pass(1_000);
    expect(pushbackOf(room.enter())).toBeGreaterThan(9_000);
  });

  test("waits a minute at most, and thousands do not come back together", () => {
    const { serve, fill, room } = makeRoom(10_000, makeRandom(1));
    serve(200, 30);
    fill();
    const pushbacks = Array.from({ length: 5_000 }, () => pushbackOf(room.enter()));
    expect(Math.max(...pushbacks)).toBe(60_000);
    const perSecond = Map.groupBy(
      pushbacks.filter((ms) => ms < 60_000),
      (ms) => Math.floor(ms / 1_000),
    );
    // 33 can be served in a second; a second in which many more come does no harm, one in which all come would.
    expect(Math.max(...[...perSecond.values()].map((all) => all.length))).toBeLessThan(200);
  });
});
