import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { growOldGenerationByHalf } from "@kpng/process/run/v8-heap.ts";
import { Store } from "../../../services/watcher/src/store/store.ts";
import { serveStore } from "../../../services/watcher/src/testing/serve-store.ts";
import { mebibytes, quantile } from "../proc.ts";
import { makeCluster, makeEndpoint, makeEndpoints, makeSlices } from "../synthetic.ts";
import { PathNetwork } from "./path-network.ts";
import { startKpng } from "./start-proxy.ts";

/**
 * Measures changes of one endpoint through the whole of kpng-ebpf: from the receipt of the sync marker until the maps
 * are committed, as the backend reports it to the watcher, and its CPU time: `npm run bench -- ebpf`.
 *
 * Watcher and store run in this process, kpng-ebpf in a network namespace, and its programs at a cgroup without
 * processes. `ebpf-alone` measures the maps without the rest of the backend.
 */
const { values } = parseArgs({
  options: {
    services: { type: "string", default: "1000,10000" },
    changes: { type: "string", default: "300" },
    /** Time between two changes, in milliseconds. */
    pause: { type: "string", default: "150" },
  },
});
const [changes, pauseMs] = [Number(values.changes), Number(values.pause)];

async function measure(services: number, folder: string): Promise<void> {
  const shape = { services, endpoints: 10, nodes: 10 };
  const store = new Store();
  store.replace(makeCluster(shape));
  const socket = join(folder, `watcher-${services}.sock`);
  const server = await serveStore(store, { listen: [`unix://${socket}`] });
  const stages: { readonly wait: number; readonly render: number; readonly commit: number }[] = [];
  server.subscribers.observe({
    applied: (_recipient, _batch, _atMs, timings) => {
      if (timings === undefined) return;
      stages.push({ wait: timings.waitMs, render: timings.renderMs, commit: timings.commitMs });
    },
  });
  const network = new PathNetwork(true);
  const args = ["--cgroup", network.cgroup ?? ""];
  const proxy = await startKpng(socket, "ebpf", { prepare: network.build, args });
  proxy.onClose(() => network[Symbol.dispose]());
  try {
    if (!(await proxy.isInstalled(120_000))) throw new Error("the first view was not applied within 120 s");
    // The remaining work of the start must not count for the first change.
    await sleep(5_000);
    stages.length = 0;
    const beforeMs = proxy.usage.cpuMs;
    for (let step = 0; step < changes; step++) {
      const service = (step * 37) % services;
      const endpoints = makeEndpoints(service, shape);
      endpoints[step % shape.endpoints] = makeEndpoint(`service-${service}-new`, services * 10 + step, shape);
      const [slice] = makeSlices(`service-${service}`, endpoints);
      if (slice === undefined) throw new Error("no slice");
      store.apply([{ kind: "put-slice", slice }]);
      if (!(await proxy.until(async () => stages.length > step, 30_000, 1))) throw new Error(`change ${step} was lost`);
      await sleep(pauseMs);
    }
    const { cpuMs, rssBytes, peakRssBytes } = proxy.usage;
    const show = (of: (stage: (typeof stages)[number]) => number): string => {
      const times = stages.map(of);
      return `median ${quantile(times, 0.5).toFixed(2)} ms, p99 ${quantile(times, 0.99).toFixed(2)} ms`;
    };
    process.stdout.write(
      `${services} Services × 10 endpoints, ${changes} changes (load ${loadavg()[0]?.toFixed(0)})\n` +
        `  received until committed: ${show(({ wait, render, commit }) => wait + render + commit)}\n` +
        `  of it, the commit: ${show(({ commit }) => commit)}\n` +
        `  CPU ${((cpuMs - beforeMs) / changes).toFixed(2)} ms per change, RSS ${mebibytes(rssBytes)}, peak ${mebibytes(peakRssBytes)}\n`,
    );
  } finally {
    await proxy.close();
    await server.stop();
  }
}

const sizes = values.services.split(",");
if (sizes.length > 1) {
  // Each size has a process of its own: the second watcher of one did not send 10 000 Services within two minutes.
  for (const size of sizes) {
    const args = ["--services", size, "--changes", values.changes, "--pause", values.pause];
    const { status } = spawnSync(process.execPath, [import.meta.filename, ...args], { stdio: "inherit" });
    if (status !== 0) process.exitCode = 1;
  }
} else {
  growOldGenerationByHalf();
  const folder = mkdtempSync(join(tmpdir(), "kpng-bench-ebpf-"));
  await measure(Number(values.services), folder);
  rmSync(folder, { recursive: true, force: true });
  process.exit();
}
