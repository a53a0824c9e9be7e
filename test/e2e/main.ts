import { setPriority } from "node:os";
import { reasonOf } from "@kpng/process/log.ts";
import { makeTestImages } from "./images/test-images.ts";
import { installKubeProxyPods, moveAll } from "./move/move.ts";
import { backendOf, help, type Options, type ProxyName, parseOptions } from "./options.ts";
import type { ProgramPaths } from "./program-paths.ts";
import { archivesFor } from "./proxy/install.ts";
import { type Measurement, recover } from "./recovery/recovery.ts";
import { findPrograms, whyNoCluster, whyNoProxy } from "./requirements.ts";
import { type ProxyRun, runProxy, withCluster } from "./run-proxy.ts";
import { keepResults, keptResults } from "./suite/kept-results.ts";
import type { TestResult } from "./suite/report.ts";
import { formatTable, summarize } from "./suite/table.ts";

/**
 * `npm run e2e`: runs Kubernetes' own tests with one proxy after the other, each on a new cluster, and prints a table;
 * or measurements instead. `help` in options.ts describes the command line. The exit status is 1 if a test failed, and
 * 2 if they could not run.
 */
async function main(): Promise<void> {
  const options = parseOptions(process.argv.slice(2));
  if (options === undefined) return void process.stdout.write(help);
  const reason = whyNoCluster() ?? options.proxies.map(whyNoProxy).find((why) => why !== undefined);
  if (reason !== undefined) throw new Error(reason);
  // The cluster and its tests use all cores for minutes, and somebody may work on this machine.
  setPriority(5);
  const programs = await findPrograms();
  if (programs.kind === "missing") throw new Error(programs.reason);
  const { paths } = programs;
  if (options.instead !== "nothing") {
    for (const proxy of options.proxies) {
      const run = await prepare(proxy, paths, options);
      if (options.instead === "move")
        await withCluster(run, (cluster) => print(moveAll(cluster)), installKubeProxyPods);
      else await withCluster(run, (cluster) => print(recover(cluster, backendOf(proxy), options.withoutWatchersMs)));
    }
    return;
  }
  const family = options.families.join(",");
  const results = new Map<ProxyName, readonly TestResult[]>();
  for (const proxy of options.proxies) {
    const run = await prepare(proxy, paths, options);
    const own = await runProxy(run);
    process.stderr.write(`e2e: ${proxy}: ${summarize(own)}\n`);
    if (options.isComplete) keepResults(family, proxy, own);
    results.set(proxy, own);
  }
  process.stdout.write(formatTable(keptResults(family, results)));
  const hasFailed = [...results.values()].flat().some(({ outcome }) => outcome.kind === "failed");
  if (hasFailed) process.exitCode = 1;
}

async function prepare(proxy: ProxyName, paths: ProgramPaths, options: Options): Promise<ProxyRun> {
  return { proxy, paths, options, images: { tests: await makeTestImages(paths), proxy: await archivesFor(proxy) } };
}

async function print(measurements: AsyncGenerator<Measurement>): Promise<void> {
  for await (const { step, measured } of measurements) process.stdout.write(`${step}: ${measured}\n`);
}

try {
  await main();
} catch (error) {
  process.stderr.write(`Error: ${reasonOf(error)}\n`);
  process.exitCode = 2;
}
