import { describe, expect, test } from "vitest";
import { Scheduler, type Work } from "./scheduler.ts";

/** Work that takes 4 ms of a fake clock, and records its name and its turn of the event loop. */
function recorder() {
  let nowMs = 0;
  let turn = 0;
  const done: string[] = [];
  const scheduler = new Scheduler(() => nowMs);
  const tick = (): void => {
    turn++;
    setImmediate(tick).unref();
  };
  setImmediate(tick).unref();
  const work = (name: string) => () => {
    nowMs += 4;
    done.push(`${name}@${turn}`);
    return name;
  };
  return { scheduler, work, done };
}

describe("the scheduler", () => {
  test("runs short work immediately", async () => {
    const { scheduler, work, done } = recorder();
    const result = scheduler.run("begin", work("a"));
    expect(done).toEqual(["a@0"]);
    expect(await result).toBe("a");
  });

  test("lets the event loop turn after each 10 ms, and keeps the order of the calls", async () => {
    const { scheduler, work, done } = recorder();
    await Promise.all(["a", "b", "c", "d", "e", "f", "g"].map((name) => scheduler.run("update", work(name))));
    const perTurn = [...Map.groupBy(done, (entry) => entry.split("@")[1]).values()];
    expect(perTurn.map((entries) => entries.length)).toEqual([3, 3, 1]);
    expect(done.map((entry) => entry[0]).join("")).toBe("abcdefg");
  });

  test("runs the rest of views in progress before new views, and an update soon", async () => {
    const { scheduler, work, done } = recorder();
    const view = async (name: string): Promise<void> => {
      await scheduler.run("begin", work(name));
      for (let count = 0; count < 4; count++) await scheduler.run("continue", work(name));
    };
    // Three views begin in the first 10 ms.
    const views = Promise.all(["a", "b", "c", "d", "e", "f"].map(view));
    setImmediate(() => void scheduler.run("update", work("!")));
    await views;
    const order = done.map((entry) => entry[0]).join("");
    // In the slice after the one in which it was scheduled.
    expect(order.indexOf("!")).toBeLessThanOrEqual(6);
    expect(order.replace("!", "").slice(0, 15)).toMatch(/^[abc]+$/);
  });

  test("reports an error to the caller of the failed work, and runs the next", async () => {
    const { scheduler, work } = recorder();
    const failing = scheduler.run("update", () => {
      throw new Error("broken");
    });
    await expect(failing).rejects.toThrow("broken");
    expect(await scheduler.run("update", work("a"))).toBe("a");
  });

  interface Cost {
    /** Duration of a piece of work. */
    readonly ms: number;
    /** Duration of the reads and writes that it causes, which happen between two turns. Default 0. */
    readonly ioMs?: number;
  }

  /** Keeps each kind of work waiting. Returns the time that each took until the end. */
  async function compete(costs: Partial<Record<Work, Cost>>, totalMs: number): Promise<Partial<Record<Work, number>>> {
    let nowMs = 0;
    const scheduler = new Scheduler(() => nowMs);
    const tookMs: Partial<Record<Work, number>> = {};
    const end = Promise.withResolvers<void>();
    for (const [name, { ms, ioMs = 0 }] of Object.entries(costs)) {
      const kind = name as Work;
      const work = (): void => {
        nowMs += ms;
        tookMs[kind] = (tookMs[kind] ?? 0) + ms + ioMs;
        process.nextTick(() => {
          nowMs += ioMs;
        });
        if (nowMs < totalMs) scheduler.schedule(kind, work);
        else end.resolve();
      };
      setImmediate(() => scheduler.schedule(kind, work));
    }
    await end.promise;
    return tookMs;
  }

  test.each<{ what: string; costs: Record<"update" | "begin", Cost> }>([
    { what: "a piece costs the same", costs: { update: { ms: 1 }, begin: { ms: 1 } } },
    { what: "a piece costs more", costs: { update: { ms: 0.1 }, begin: { ms: 60 } } },
    // Without the charge for them, updates would get eight times as much.
    { what: "updates cause reads and writes", costs: { update: { ms: 0.1, ioMs: 0.3 }, begin: { ms: 5 } } },
  ])("gives first views a third of the thread beside constant updates, if $what", async ({ costs }) => {
    const { update = 0, begin = 0 } = await compete(costs, 20_000);
    expect(begin / (update + begin)).toBeCloseTo(1 / 3, 1);
  });

  test("leaves the time of an idle lane to the other, in which responses take turns with views", async () => {
    expect((await compete({ begin: { ms: 2 } }, 1_000)).begin).toBe(1_000);
    const { begin = 0, query = 0 } = await compete({ begin: { ms: 1 }, query: { ms: 1 } }, 4_000);
    expect(begin / query).toBeCloseTo(1, 1);
  });

  test("completes a round of updates that has begun before first views are next", async () => {
    const { scheduler, work, done } = recorder();
    const all: Promise<unknown>[] = [];
    const add = (kind: Work, name: string): void => void all.push(scheduler.run(kind, work(name)));
    for (let index = 0; index < 20; index += 1) add("begin", "r");
    for (let index = 0; index < 10; index += 1) add("update", "u");
    add("round", "!");
    // Changes follow during the round.
    setImmediate(() => setImmediate(() => add("update", "v")));
    await Promise.all(all);
    const order = done.map((entry) => entry[0]).join("");
    expect(order).toContain("uuuuuuuuuu");
    // The next round waits until the others have had their share.
    expect(order).toMatch(/v/);
    expect(order).toMatch(/!r{2,}/);
  });

  test("lets the event loop turn sooner while clients connect", async () => {
    const { scheduler, work, done } = recorder();
    setImmediate(() => scheduler.connected());
    await Promise.all(Array.from({ length: 9 }, (_, index) => scheduler.run("update", work(String(index)))));
    const perTurn = [...Map.groupBy(done, (entry) => entry.split("@")[1]).values()];
    expect(perTurn.map((entries) => entries.length)).toEqual([3, 1, 3, 2]);
  });
});
