import { makeRandom } from "@kpng/process/testing/random.ts";
import { describe, expect, test } from "vitest";
import { AdmissionRoom, type AdmissionTicket, type Entry } from "./admission-room.ts";

/** A room with a fake clock; random numbers are always 0.5. */
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
  /** Enters until the room is full. */
  const fill = (): AdmissionTicket[] => {
    const tickets: AdmissionTicket[] = [];
    for (let entry: Entry = room.enter(); entry.kind === "admitted"; entry = room.enter()) tickets.push(entry.ticket);
    return tickets;
  };
  /** Completes `count` first batches, each in this time. */
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

describe("an admission room", () => {
  test.each([
    { costMs: 10, tickets: 1_000 },
    { costMs: 100, tickets: 100 },
    { costMs: 5_000, tickets: 16 },
    { costMs: 0, tickets: 10_000 },
  ])("admits as many streams as it can serve in time: $tickets at $costMs ms each", ({ costMs, tickets }) => {
    const { serve, fill } = makeRoom(10_000);
    serve(200, costMs);
    expect(fill().length / tickets).toBeCloseTo(1, 1);
  });

  test("admits any number without a limit", () => {
    const { serve, enter, room } = makeRoom(0);
    serve(10, 1_000);
    for (let count = 0; count < 5_000; count++) enter();
    expect(room.size).toBe(5_000);
  });

  test("frees a ticket once, when the first batch is complete or the stream ends", () => {
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

  test("expires the tickets of readers that stopped reading, but not of those that wait for the watcher", () => {
    const { fill, enter, pass, room } = makeRoom(1_000);
    const tickets = fill();
    for (const ticket of tickets.slice(0, 3)) ticket.wrote();
    pass(10_001);
    tickets[0]?.wrote();
    enter();
    expect(room.size).toBe(tickets.length - 1);
  });
});

describe("a refused stream", () => {
  test("is told to retry when there may be room, at the rate at which streams are served", () => {
    const { serve, fill, room } = makeRoom(2_000);
    serve(200, 20);
    const { length } = fill();
    const pushbacks = Array.from({ length: 50 }, () => pushbackOf(room.enter()));
    // `fill` had one refusal.
    expect(pushbacks[0]).toBeCloseTo((length * 20) / 2 + 20, -1);
    for (const [index, pushback] of pushbacks.entries()) {
      if (index > 0) expect(pushback - (pushbacks[index - 1] ?? 0)).toBeCloseTo(20, 0);
    }
  });

  test("is not told to retry before earlier ones", () => {
    const { serve, fill, room, pass } = makeRoom(2_000);
    serve(200, 20);
    fill();
    for (let count = 0; count < 500; count++) room.enter();
    pass(1_000);
    expect(pushbackOf(room.enter())).toBeGreaterThan(9_000);
  });

  test("waits a minute at most, and thousands do not retry together", () => {
    const { serve, fill, room } = makeRoom(10_000, makeRandom(1));
    serve(200, 30);
    fill();
    const pushbacks = Array.from({ length: 5_000 }, () => pushbackOf(room.enter()));
    expect(Math.max(...pushbacks)).toBe(60_000);
    const perSecond = Map.groupBy(
      pushbacks.filter((ms) => ms < 60_000),
      (ms) => Math.floor(ms / 1_000),
    );
    // 33 can be served in a second. Many more in one second do no harm, all of them would.
    expect(Math.max(...[...perSecond.values()].map((all) => all.length))).toBeLessThan(200);
  });
});
