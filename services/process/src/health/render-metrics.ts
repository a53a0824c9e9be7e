import { setTimeout as sleep } from "node:timers/promises";
import type { Registry } from "prom-client";
import { type Clock, realClock } from "../clock.ts";

/** Shortest time between two renderings, in milliseconds. One takes several. */
const pauseMs = 100;

/** Its timers do not keep the process running. */
const unheldClock: Clock = { ...realClock, wait: (ms) => sleep(ms, undefined, { ref: false }) };

const never = new AbortController().signal;

/**
 * Returns a function that renders the metrics as text, at most ten times a second, so that a flood of requests for them
 * does not hold up health. Requests that come sooner wait, and share the next rendering: no answer is older than its
 * request.
 *
 * The status server and the proxies' `proxyObserveTasks` of backend-kit each make one. `clock` is for tests.
 */
export function makeRenderer(metrics: Registry, clock: Clock = unheldClock): () => Promise<string> {
  let next: Promise<string> | undefined;
  let lastMs = Number.NEGATIVE_INFINITY;
  const render = (): Promise<string> => {
    next = undefined;
    lastMs = clock.nowMs();
    return metrics.metrics();
  };
  return () => {
    const restMs = lastMs + pauseMs - clock.nowMs();
    // At once where no pause is needed: Node.js closes connections whose clients have ended their side.
    if (next === undefined && restMs <= 0) return render();
    next ??= clock.wait(restMs, never).then(render);
    return next;
  };
}
