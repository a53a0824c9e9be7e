import { mkdtempSync, rmSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep, setImmediate as turn } from "node:timers/promises";
import { parseArgs } from "node:util";
import { growOldGenerationByHalf } from "@kpng/process/run/v8-heap.ts";
import type { ObjectChange } from "../../../services/watcher/src/source/source.ts";
import { Store } from "../../../services/watcher/src/store/store.ts";
import { serveStore } from "../../../services/watcher/src/testing/serve-store.ts";
import { monotonicMs } from "../monotonic.ts";
import { mebibytes, quantile } from "../proc.ts";
import { makeCluster, makeEndpoint, makeEndpoints, makeService, makeSlices } from "../synthetic.ts";
import { ProbedNode, probedEndpoint } from "./probed-node.ts";

/**
 * Changes endpoints of a watcher at a constant rate, and measures how far the kernel of a node lags behind with
 * kpng-nft. Meanwhile it counts connections and packets to a Service that does not change: `npm run bench -- nft-load`.
 *
 * Watcher and store run in this process, kpng-nft in a network namespace. A beacon Service changes 20 times a second;
 * views are applied in order and as a whole, so its lag is that of all changes.
 */
const { values } = parseArgs({
  options: {
    services: { type: "string", default: "1000" },
    seconds: { type: "string", default: "60" },
    rate: { type: "string", default: "500" },
  },
});
const [services, seconds, rate] = [values.services, values.seconds, values.rate].map(Number) as [
  number,
  number,
  number,
];
const shape = { services, endpoints: 10, nodes: 10 };
const steadyName = "steady";
const beaconName = "beacon";
const beaconEvery = Math.max(1, Math.round(rate / 20));

/** A slice of one Service with one endpoint at this address. */
function oneEndpoint(name: string, address: string): ObjectChange {
  const endpoint = { ...makeEndpoint(name, 0, shape), addresses: { v4: [address], v6: [] } };
  const [slice] = makeSlices(name, [endpoint]);
  if (slice === undefined) throw new Error("no slice");
  return { kind: "put-slice", slice };
}

function beaconAt(number: number): ObjectChange {
  return oneEndpoint(beaconName, `10.${number >> 16}.${(number >> 8) & 255}.${number & 255}`);
}

/** Another address for one endpoint of a Service. */
function churn(step: number): ObjectChange {
  const service = (step * 37) % services;
  const endpoints = makeEndpoints(service, shape);
  endpoints[step % shape.endpoints] = makeEndpoint(`service-${service}-new`, services * shape.endpoints + step, shape);
  const [slice] = makeSlices(`service-${service}`, endpoints);
  if (slice === undefined) throw new Error("no slice");
  return { kind: "put-slice", slice };
}

growOldGenerationByHalf();
const store = new Store();
store.replace(makeCluster(shape));
const steady = makeService(services);
const steadyIP = steady.clusterIPs?.v4[0];
store.apply([
  { kind: "put-service", service: { ...steady, name: steadyName } },
  oneEndpoint(steadyName, probedEndpoint),
  { kind: "put-service", service: { ...makeService(services + 1), name: beaconName, clientIPAffinitySeconds: 600 } },
  beaconAt(1),
]);
const folder = mkdtempSync(join(tmpdir(), "kpng-nft-load-"));
const server = await serveStore(store, { listen: [`unix://${join(folder, "api.sock")}`] });
const node = await ProbedNode.start(server.address, "node-1", steadyIP);
try {
  if ((await node.seen(1, 60_000)) === undefined) throw new Error("the first view was not applied within 60 s");
  node.startTraffic();
  await sleep(2_000);
  const before = node.usage.cpuMs;
  const beacons: { readonly number: number; readonly atMs: number }[] = [];
  const startMs = monotonicMs();
  let worstDelayMs = 0;
  for (let step = 0; step < rate * seconds; step++) {
    const dueMs = startMs + (step * 1_000) / rate;
    // A turn of the event loop in any case: the watcher sends in this process.
    await (dueMs > monotonicMs() + 1 ? sleep(dueMs - monotonicMs()) : turn());
    worstDelayMs = Math.max(worstDelayMs, monotonicMs() - dueMs);
    const isBeacon = step % beaconEvery === 0;
    if (isBeacon) beacons.push({ number: beacons.length + 2, atMs: monotonicMs() });
    store.apply(isBeacon ? [churn(step), beaconAt(beacons.length + 1)] : [churn(step)]);
  }
  const elapsedMs = monotonicMs() - startMs;
  await node.seen(beacons.length + 1, 60_000);
  const lags = beacons.map(({ number, atMs }) => (node.firstSeenFrom(number) ?? Number.POSITIVE_INFINITY) - atMs);
  const { cpuMs, rssBytes, peakRssBytes } = node.usage;
  const { connections, failed, slowestMs, sent, lost } = await node.traffic();
  const ms = (value: number): string => `${value.toFixed(0)} ms`;
  process.stdout.write(
    [
      `${services} Services × 10 endpoints, ${rate * seconds} changes in ${(elapsedMs / 1_000).toFixed(1)} s (load ${loadavg()[0]?.toFixed(0)})`,
      `lag of the kernel: median ${ms(quantile(lags, 0.5))}, p99 ${ms(quantile(lags, 0.99))}, longest ${ms(Math.max(...lags))}`,
      `kpng-nft: ${((cpuMs - before) / (rate * seconds)).toFixed(2)} ms CPU per change, RSS ${mebibytes(rssBytes)}, peak ${mebibytes(peakRssBytes)}`,
      `unaffected Service: ${connections} connections, ${failed} failed, slowest ${ms(slowestMs)}; ${sent} packets, ${lost} lost`,
      `changes were made up to ${ms(worstDelayMs)} late`,
      "",
    ].join("\n"),
  );
} finally {
  await node.close();
  await server.stop();
  rmSync(folder, { recursive: true, force: true });
}
process.exit();
