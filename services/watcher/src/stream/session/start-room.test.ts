import { makeRandom } from "@kpng/process/testing/random.ts";
import { describe, expect, test } from "vitest";
import { type Entry, StartRoom, type StartTicket } from "./start-room.ts";

/** A room with a fake clock; random numbers are always 0.5. */
function makeRoom(maxWaiting: number, random = () => 0.5) {
  let nowMs = 0;
  const room = new StartRoom({ maxWaiting, nowMs: () => nowMs, random });
  const pass = (ms: number): void => {
    nowMs += ms;
  };
  const enter = (): StartTicket => {
    const entry = room.enter();
    if (entry.kind !== "waits") throw new Error(`full: ${entry.pushbackMs} ms`);
    return entry.ticket;
  };
  const fill = (): StartTicket[] => Array.from({ length: maxWaiting - room.size }, enter);
  /** Completes `count` first batches, each in this time. */
  const serve = (count: number, costMs: number): void => {
    for (let served = 0; served < count; served++) {
      const ticket = enter();
      pass(costMs);
      ticket.done();
    }
  };
  return { room, pass, enter, fill, serve, now: () => nowMs };
}

function pushbackOf(entry: Entry): number {
  if (entry.kind !== "full") throw new Error("there was room");
  return entry.pushbackMs;
}

describe("a room for waiting streams", () => {
  test.each([0, 10, 100, 5_000])("takes the same number of streams when a first batch takes %i ms", (costMs) => {
    const { serve, fill, enter, room } = makeRoom(600);
    serve(20, costMs);
    fill();
    expect(room.size).toBe(600);
    expect(enter).toThrow("full");
  });

  test("takes any number without a limit", () => {
    const { serve, enter, room } = makeRoom(0);
    serve(10, 1_000);
    for (let count = 0; count < 5_000; count++) enter();
    expect(room.size).toBe(5_000);
  });

  test("frees a place once, when the first batch is complete or the stream ends", () => {
    const { fill, enter, pass } = makeRoom(100);
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

  test("frees the places of readers that stopped reading, but not of streams that wait for the watcher", () => {
    const { fill, enter, pass, room } = makeRoom(100);
    const tickets = fill();
    for (const ticket of tickets.slice(0, 3)) ticket.wrote();
    pass(10_001);
    tickets[0]?.wrote();
    enter();
    expect(room.size).toBe(tickets.length - 1);
  });
});

describe("a refused stream", () => {
  test("of 5 000 that begin together beside room for 1 000 is served soon, and most are refused once", () => {
    const { room, pass, now } = makeRoom(1_000, makeRandom(1));
    const retries = Array.from({ length: 5_000 }, (_, index) => index);
    const waiting: StartTicket[] = [];
    let refusedCount = 0;
    for (let servedCount = 0; servedCount < 5_000; ) {
      const due = retries.findIndex((atMs) => atMs <= now());
      if (due >= 0) {
        const entry = room.enter();
        if (entry.kind === "waits") waiting.push(entry.ticket);
        else refusedCount += 1;
        if (entry.kind === "waits") retries.splice(due, 1);
        else retries[due] = now() + entry.pushbackMs;
        continue;
      }
      pass(3);
      const served = waiting.shift();
      if (served === undefined) continue;
      served.done();
      servedCount += 1;
    }
    // 15 s of work; at 20 ms between retries, it took a minute.
    expect(now()).toBeLessThan(30_000);
    expect(refusedCount).toBeLessThan(2 * 4_000);
  });

  test.each([30, 10])(
    "is told to retry when there may be room, at the rate of one in %i ms at which streams are served",
    (costMs) => {
      const { serve, fill, room } = makeRoom(200);
      serve(200, costMs);
      fill();
      const pushbacks = Array.from({ length: 50 }, () => pushbackOf(room.enter()));
      expect(pushbacks[0]).toBeCloseTo((200 * costMs) / 2, -1);
      for (const [index, pushback] of pushbacks.entries()) {
        if (index > 0) expect(pushback - (pushbacks[index - 1] ?? 0)).toBeCloseTo(costMs, 0);
      }
    },
  );

  test("does not wait longer because the first view took longer", () => {
    const { serve, fill, room } = makeRoom(200);
    serve(1, 3_000);
    serve(10, 5);
    fill();
    expect(pushbackOf(room.enter())).toBe(1_000);
  });

  test.each([
    { when: "before any stream was served", servedCount: 0 },
    { when: "when streams were served a second ago, and none since", servedCount: 200 },
  ])("retries at most 50 times a second together with the others $when", ({ servedCount }) => {
    const { serve, fill, pass, room } = makeRoom(100);
    serve(servedCount, 2);
    fill();
    pass(1_000);
    const pushbacks = Array.from({ length: 500 }, () => pushbackOf(room.enter()));
    const perSecond = Map.groupBy(pushbacks, (ms) => Math.floor(ms / 1_000));
    expect(Math.max(...[...perSecond.values()].map((all) => all.length))).toBeLessThanOrEqual(51);
  });

  test("does not wait longer because the first list of the source took long, or because many were refused before", () => {
    const { fill, room, pass } = makeRoom(100);
    const waiting = fill();
    for (let count = 0; count < 5_000; count++) room.enter();
    pass(30_000);
    for (const ticket of waiting.slice(0, 2)) ticket.done();
    fill();
    for (const ticket of waiting.slice(2)) ticket.done();
    fill();
    expect(pushbackOf(room.enter())).toBe(1_000);
  });

  test("is not told to retry before earlier ones", () => {
    const { serve, fill, room, pass } = makeRoom(100);
    serve(200, 20);
    fill();
    for (let count = 0; count < 500; count++) room.enter();
    pass(1_000);
    expect(pushbackOf(room.enter())).toBeGreaterThan(9_000);
  });

  test("waits two and a half minutes at most, and thousands do not retry together", () => {
    const { fill, room } = makeRoom(1_000, makeRandom(1));
    fill();
    const pushbacks = Array.from({ length: 5_000 }, () => pushbackOf(room.enter()));
    expect(Math.max(...pushbacks)).toBeLessThanOrEqual(150_000);
    const perSecond = Map.groupBy(pushbacks, (ms) => Math.floor(ms / 1_000));
    expect(Math.max(...[...perSecond.values()].map((all) => all.length))).toBeLessThan(100);
  });
});
