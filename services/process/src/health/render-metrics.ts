import { setTimeout as sleep } from "node:timers/promises";
import type { Registry } from "prom-client";

/** Shortest time between two renderings, in milliseconds. One takes several. */
const pauseMs = 100;

/**
 * Returns a function that renders the metrics as text, at most ten times a second, so that a flood of requests for them
 * does not hold up health. Requests that come sooner wait, and share the next rendering: no answer is older than its
 * request.
 *
 * The status server and the proxies' `proxyObserveTasks` of backend-kit each make one.
 */
export function makeRenderer(metrics: Registry): () => Promise<string> {
  let next: Promise<string> | undefined;
  let lastMs = Number.NEGATIVE_INFINITY;
  const render = (): Promise<string> => {
    next = undefined;
    lastMs = performance.now();
    return metrics.metrics();
  };
  return () => {
    const restMs = lastMs + pauseMs - performance.now();
    // At once where no pause is needed: Node.js closes connections whose clients have ended their side.
    if (next === undefined && restMs <= 0) return render();
    next ??= sleep(restMs, undefined, { ref: false }).then(render);
    return next;
  };
}
