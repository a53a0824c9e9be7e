import { setTimeout as sleep } from "node:timers/promises";
import { makeRandom, makeRandomBelow } from "@kpng/process/testing/random.ts";
import { ApiClient } from "../../cluster/api-client.ts";
import { createAll, type Endpoint, randomChange } from "./changed-services.ts";

/** Argument of the changer, in JSON. */
export interface ChangerOptions {
  readonly server: string;
  readonly caFile: string;
  readonly seed: number;
  readonly serviceCount: number;
  readonly changesPerSecond: number;
  readonly endpoints: readonly Endpoint[];
}

/** Output of the changer when its input ends, in JSON. */
export interface ChangerTotals {
  /** Changes that the API server accepted. */
  readonly accepted: number;
  /** Changes that it refused because they fit no longer: the Service exists already, or no longer. */
  readonly refused: number;
  /** Changes without an answer. */
  readonly unanswered: number;
}

// Changes Services of a cluster at random until its standard input ends. A process of its own, because it runs on the
// host of the control plane, from which alone the API server can be reached. It prints "ready" when the Services exist.

const requestsAtOnce = 8;

const [, , argument = ""] = process.argv;
const options = JSON.parse(argument) as ChangerOptions;
const { serviceCount, endpoints, changesPerSecond } = options;
const api = new ApiClient(`https://${options.server}`, options.caFile);
const below = makeRandomBelow(makeRandom(options.seed));
for (const { method, path, body } of createAll(serviceCount, endpoints)) await api.call(method, path, body);
process.stdout.write("ready\n");

let hasEnded = false;
process.stdin.once("end", () => {
  hasEnded = true;
});
process.stdin.resume();
const totals = { accepted: 0, refused: 0, unanswered: 0 };
const pending = new Set<Promise<void>>();
const startMs = performance.now();
for (let count = 0; !hasEnded; count++) {
  await sleep(Math.max(0, startMs + (count * 1000) / changesPerSecond - performance.now()));
  while (pending.size >= requestsAtOnce) await Promise.race(pending);
  const { method, path, body } = randomChange(below, serviceCount, endpoints);
  const sent = api.call(method, path, body).then(
    () => void totals.accepted++,
    (error: unknown) => {
      if (error instanceof Error && "status" in error) totals.refused++;
      else totals.unanswered++;
    },
  );
  pending.add(sent);
  void sent.finally(() => pending.delete(sent));
}
await Promise.all(pending);
api.close();
process.stdout.write(`${JSON.stringify(totals satisfies ChangerTotals)}\n`);
