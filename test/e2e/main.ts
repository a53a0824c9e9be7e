import { setPriority } from "node:os";
import { reasonOf } from "@kpng/process/log.ts";
import { startCluster } from "./cluster/cluster.ts";
import { makeTestImages } from "./images/test-images.ts";
import { moveAll } from "./instead/move.ts";
import { recover } from "./instead/recovery.ts";
import { upgradeAndRollBack } from "./instead/upgrade.ts";
import { help, type Options, type ProxyName, parseOptions } from "./options.ts";
import type { ProgramPaths } from "./program-paths.ts";
import { installProxy, isKubeProxy, type KubeProxy } from "./proxy/install.ts";
import { type Installation, installationOfRelease, installationOfSources } from "./proxy/installation.ts";
import { findPrograms, needsGuest, whyNoCluster, whyNoProxy } from "./requirements.ts";
import type { TestResult } from "./suite/report.ts";
import { runTests } from "./suite/run-tests.ts";
import { type Column, formatTable, summarize } from "./suite/table.ts";

/**
 * `npm run e2e`: runs Kubernetes' own tests with one proxy after the other, each on a new cluster, and prints a table.
 * `help` in options.ts describes the command line. The exit status is 1 if a test failed, and 2 if they could not run.
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
  const columns: Column[] = [];
  for (const proxy of options.proxies) {
    const results = await runProxy(proxy, programs.paths, options);
    if (options.instead !== undefined) continue;
    process.stderr.write(`e2e: ${proxy}: ${summarize(results)}\n`);
    columns.push({ title: proxy.startsWith("kube-proxy") ? proxy : `kpng-${proxy}`, results });
  }
  if (options.instead === undefined) process.stdout.write(formatTable(columns));
  const hasFailed = columns.some(({ results }) => results.some(({ outcome }) => outcome.kind === "failed"));
  if (hasFailed) process.exitCode = 1;
}

/** Runs Kubernetes' tests with one proxy on a new cluster, or what runs instead, which has no results. */
async function runProxy(proxy: ProxyName, paths: ProgramPaths, options: Options): Promise<readonly TestResult[]> {
  const { families, nodeCount, keep, selection, instead, release, helm, upgradeFrom } = options;
  const find = (folder: string | undefined): KubeProxy | Promise<Installation> => {
    if (isKubeProxy(proxy)) return proxy;
    return folder === undefined ? installationOfSources(proxy) : installationOfRelease(folder, proxy, helm);
  };
  const installation = await find(release);
  const former = upgradeFrom === undefined ? undefined : await find(upgradeFrom);
  const archives = [installation, former].flatMap((each) => (typeof each === "object" ? each.archives : []));
  const images = { tests: await makeTestImages(paths), proxy: archives };
  const inGuest = needsGuest(proxy);
  const startedMs = performance.now();
  const cluster = await startCluster({ paths, images, families, nodeCount, keepsLogs: keep, inGuest });
  const say = (text: string): void => void process.stderr.write(`e2e: ${proxy}: ${text}\n`);
  const install = async (which: KubeProxy | Installation): Promise<void> => {
    const { nodesMs, dnsMs } = await installProxy(which, cluster, paths);
    const times = `Services ${inSeconds(nodesMs)}, DNS ${inSeconds(dnsMs)}`;
    say(`from the beginning of the installation until they worked: ${times}`);
  };
  try {
    const startMs = performance.now() - startedMs;
    say(`${nodeCount} nodes are ready after ${inSeconds(startMs)}; files in ${cluster.folder}`);
    if (instead === "move" && typeof installation === "object") {
      await moveAll(cluster, paths, installation);
      return [];
    }
    await install(former ?? installation);
    // Everything takes longer in a guest, and more tests at the same time would reach their time limits.
    if (instead === undefined || typeof installation === "string")
      return await runTests(cluster, paths, { selection, testsPerCore: inGuest ? 2 : 4 });
    if (instead === "recovery") await recover(cluster, installation.backend);
    else if (typeof former === "object") await upgradeAndRollBack(cluster, former, installation);
    return [];
  } finally {
    await cluster.stop();
  }
}

function inSeconds(durationMs: number): string {
  return `${(durationMs / 1000).toFixed(1)} s`;
}

try {
  await main();
} catch (error) {
  process.stderr.write(`Error: ${reasonOf(error)}\n`);
  process.exitCode = 2;
}
