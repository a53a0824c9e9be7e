import { Gauge, Registry } from "prom-client";
import { expect, test } from "vitest";
import { ManualClock } from "../testing/manual-clock.ts";
import { makeRenderer } from "./render-metrics.ts";

/** Metrics whose value is the number of renderings. */
function start() {
  const metrics = new Registry();
  let count = 0;
  const gauge: Gauge = new Gauge({ name: "x", help: "x", registers: [metrics], collect: () => gauge.set(++count) });
  const clock = new ManualClock();
  const render = makeRenderer(metrics, clock);
  /** Numbers of the renderings that requests get, in the order of the requests; 0 while one waits. */
  const answers: number[] = [];
  const ask = (): void => {
    const at = answers.push(0) - 1;
    void render().then((text) => {
      answers[at] = Number(/^x (\d+)$/m.exec(text)?.[1]);
    });
  };
  return { ask, answers, clock };
}

test("the first request gets a rendering at once, and those in the 100 ms after it share the next one", async () => {
  const { ask, answers, clock } = start();
  for (let at = 0; at < 20; at++) ask();
  await clock.advance(99);
  expect(answers).toEqual([1, ...Array(19).fill(0)]);
  ask();
  await clock.advance(1);
  expect(answers).toEqual([1, ...Array(20).fill(2)]);
});

test("a request gets no rendering from before it", async () => {
  const { ask, answers, clock } = start();
  // Four of them come within 100 ms of a rendering, and wait for the next one.
  for (const pauseMs of [100, 1_000, 1, 99, 1, 99, 1_000]) {
    ask();
    await clock.advance(pauseMs);
  }
  ask();
  await clock.advance(0);
  expect(answers).toEqual([1, 2, 3, 4, 5, 5, 6, 7]);
});
