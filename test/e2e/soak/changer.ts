import { setTimeout as sleep } from "node:timers/promises";
import { makeRandom, makeRandomBelow } from "@kpng/process/testing/random.ts";
import { ApiClient, ApiError } from "../../cluster/api-client.ts";
import { type Change, changedName, createAll, type Endpoint, existsAfter, randomChange } from "./changed-services.ts";

/** Argument of the changer, in JSON. */
export interface ChangerOptions {
  readonly server: string;
  readonly caFile: string;
  readonly seed: number;
  readonly serviceCount: number;
  /** Accepted changes per second, on average: what the API server misses while it is away follows when it is back. */
  readonly changesPerSecond: number;
  readonly endpoints: readonly Endpoint[];
}

/** Output of the changer when its input ends, in JSON. */
export interface ChangerTotals {
  /** Changes that the API server accepted. */
  readonly accepted: number;
  /** Changes that it refused, because the one before them had no answer or was under way. */
  readonly refused: number;
  /** Changes without an answer. */
  readonly unanswered: number;
  /** Duration of the changes, in milliseconds. */
  readonly durationMs: number;
}

// Changes Services of a cluster at random until its standard input ends. A process of its own, because it runs on the
// host of the control plane, from which alone the API server can be reached. It prints "ready" when the Services exist.

const requestsAtOnce = 8;
/** Pause after a request that failed: without an API server, requests fail at once. */
const pauseMs = 200;

const [, , argument = ""] = process.argv;
const options = JSON.parse(argument) as ChangerOptions;
const { serviceCount, endpoints, changesPerSecond } = options;
const api = new ApiClient(`https://${options.server}`, options.caFile);
const below = makeRandomBelow(makeRandom(options.seed));
for (const { method, path, body } of createAll(serviceCount, endpoints)) await api.call(method, path, body);
const existing = new Map(Array.from({ length: serviceCount }, (_, index) => [changedName(index), true]));
process.stdout.write("ready\n");

let hasEnded = false;
process.stdin.once("end", () => {
  hasEnded = true;
});
process.stdin.resume();
const totals = { accepted: 0, refused: 0, unanswered: 0 };
const pending = new Set<Promise<void>>();
const startMs = performance.now();
while (!hasEnded) {
  const dueMs = startMs + ((totals.accepted + pending.size) * 1000) / changesPerSecond;
  if (pending.size >= requestsAtOnce) await Promise.race(pending);
  else if (dueMs > performance.now()) await sleep(dueMs - performance.now());
  else {
    const sent = send(randomChange(below, existing, endpoints));
    pending.add(sent);
    void sent.finally(() => pending.delete(sent));
  }
}
await Promise.all(pending);
api.close();
const durationMs = performance.now() - startMs;
process.stdout.write(`${JSON.stringify({ ...totals, durationMs } satisfies ChangerTotals)}\n`);

async function send(change: Change): Promise<void> {
  const { method, path, body } = change;
  const after = existsAfter(change);
  try {
    await api.call(method, path, body);
    totals.accepted++;
    if (after !== undefined) existing.set(after.name, after.exists);
  } catch (error) {
    if (!(error instanceof ApiError)) totals.unanswered++;
    else {
      totals.refused++;
      // 409: it was there already. 404: it was not.
      if (after !== undefined && [404, 409].includes(error.status)) existing.set(after.name, after.exists);
    }
    await sleep(pauseMs);
  }
}
