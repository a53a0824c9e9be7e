import { describe, expect, test } from "vitest";
import { inTurns, Turns } from "./turns.ts";

/** Work that takes 4 ms of a fake clock, and records its name and its turn of the event loop. */
function recorder() {
  let nowMs = 0;
  let turn = 0;
  const done: string[] = [];
  const turns = new Turns(() => nowMs);
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
  return { turns, work, done };
}

describe("turns", () => {
  test("run short work immediately", async () => {
    const { turns, work, done } = recorder();
    const result = turns.run("begin", work("a"));
    expect(done).toEqual(["a@0"]);
    expect(await result).toBe("a");
  });

  test("let the event loop turn after each 10 ms, and keep the order of the calls", async () => {
    const { turns, work, done } = recorder();
    await Promise.all(["a", "b", "c", "d", "e", "f", "g"].map((name) => turns.run("update", work(name))));
    const perTurn = [...Map.groupBy(done, (entry) => entry.split("@")[1]).values()];
    expect(perTurn.map((entries) => entries.length)).toEqual([3, 3, 1]);
    expect(done.map((entry) => entry[0]).join("")).toBe("abcdefg");
  });

  test("run updates first, then the rest of views in progress, then new views", async () => {
    const { turns, work, done } = recorder();
    const view = async (name: string): Promise<void> => {
      await turns.run("begin", work(name));
      for (let count = 0; count < 4; count++) await turns.run("continue", work(name));
    };
    // Three views begin in the first 10 ms.
    const views = Promise.all(["a", "b", "c", "d", "e", "f"].map(view));
    setImmediate(() => void turns.run("update", work("!")));
    await views;
    const order = done.map((entry) => entry[0]).join("");
    // In the slice after the one in which it was scheduled.
    expect(order.indexOf("!")).toBeLessThanOrEqual(6);
    expect(order.replace("!", "").slice(0, 15)).toMatch(/^[abc]+$/);
  });

  test("run subscribers that resume before subscribers that begin", async () => {
    const { turns, work, done } = recorder();
    const begin = ["a", "b", "c", "d", "e", "f"].map((name) => turns.run("begin", work(name)));
    setImmediate(() => {
      for (const name of ["1", "2", "3"]) void turns.run("resume", work(name));
    });
    await Promise.all(begin);
    const order = done.map((entry) => entry[0]).join("");
    expect(order.indexOf("3")).toBeLessThan(order.indexOf("f"));
  });

  test("report an error to the caller of the failed work, and run the next", async () => {
    const { turns, work } = recorder();
    const failing = turns.run("update", () => {
      throw new Error("broken");
    });
    await expect(failing).rejects.toThrow("broken");
    expect(await turns.run("update", work("a"))).toBe("a");
  });

  test("compute items one by one, and none after the abort", async () => {
    const stop = new AbortController();
    const made: number[] = [];
    function* items(): Iterable<number> {
      for (let index = 0; index < 5; index++) {
        made.push(index);
        yield index;
      }
    }
    for await (const item of inTurns(items(), "begin", stop.signal)) if (item === 2) stop.abort();
    expect(made).toEqual([0, 1, 2]);
  });
});
