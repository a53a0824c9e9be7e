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

  /** Keeps each kind of work waiting; its pieces take this time. Returns the time that each kind took until the end. */
  async function compete(
    costsMs: Partial<Record<Work, number>>,
    totalMs: number,
  ): Promise<Partial<Record<Work, number>>> {
    let nowMs = 0;
    const scheduler = new Scheduler(() => nowMs);
    const tookMs: Partial<Record<Work, number>> = {};
    const end = Promise.withResolvers<void>();
    for (const [name, costMs] of Object.entries(costsMs)) {
      const kind = name as Work;
      const work = (): void => {
        nowMs += costMs;
        tookMs[kind] = (tookMs[kind] ?? 0) + costMs;
        if (nowMs < totalMs) scheduler.schedule(kind, work);
        else end.resolve();
      };
      setImmediate(() => scheduler.schedule(kind, work));
    }
    await end.promise;
    return tookMs;
  }

  test("gives first views a third of the thread beside constant updates, whatever a piece costs", async () => {
    for (const costs of [
      { update: 1, begin: 1 },
      { update: 0.1, begin: 60 },
    ]) {
      const { update = 0, begin = 0 } = await compete(costs, 20_000);
      expect(begin / 20_000).toBeCloseTo(1 / 3, 1);
      expect(update / 20_000).toBeCloseTo(2 / 3, 1);
    }
  });

  test("leaves the time of an idle lane to the other, in which responses take turns with views", async () => {
    expect((await compete({ begin: 2 }, 1_000)).begin).toBe(1_000);
    const { begin = 0, query = 0 } = await compete({ begin: 1, query: 1 }, 4_000);
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

  test("divides the thread again if updates do not end", async () => {
    const { scheduler, work, done } = recorder();
    const all = Array.from({ length: 100 }, () => scheduler.run("update", work("u")));
    all.push(scheduler.run("begin", work("r")));
    await Promise.all(all);
    const order = done.map((entry) => entry[0]).join("");
    expect(order.indexOf("r")).toBeLessThan(30);
  });

  test("charges what work causes in the event loop to its lane", async () => {
    let nowMs = 0;
    const charging = new Scheduler(() => nowMs);
    const tookMs = { update: 0, begin: 0 };
    const end = Promise.withResolvers<void>();
    const again = (kind: "update" | "begin", costMs: number, ioMs: number): void =>
      charging.schedule(kind, () => {
        nowMs += costMs;
        tookMs[kind] += costMs + ioMs;
        // Reads and writes, which happen between two turns.
        process.nextTick(() => {
          nowMs += ioMs;
        });
        if (nowMs < 20_000) again(kind, costMs, ioMs);
        else end.resolve();
      });
    setImmediate(() => {
      again("update", 0.1, 0.3);
      again("begin", 5, 0);
    });
    await end.promise;
    // Without the charge, updates would get eight times as much.
    expect(tookMs.update / tookMs.begin).toBeCloseTo(2, 0);
  });

  test("lets the event loop turn sooner while clients connect", async () => {
    const { scheduler, work, done } = recorder();
    setImmediate(() => scheduler.connected());
    await Promise.all(Array.from({ length: 9 }, (_, index) => scheduler.run("update", work(String(index)))));
    const perTurn = [...Map.groupBy(done, (entry) => entry.split("@")[1]).values()];
    expect(perTurn.map((entries) => entries.length)).toEqual([3, 1, 3, 2]);
  });
});
