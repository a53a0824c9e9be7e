import { once } from "node:events";
import { mkdirSync, readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import type { Cluster } from "../cluster/cluster.ts";
import { apiServerPort } from "../cluster/control-plane.ts";
import { controlPlaneName, hostAndPort } from "../cluster/network.ts";
import type { ProgramPaths } from "../program-paths.ts";
import { readReport, type Selection, type TestResult } from "./report.ts";

/**
 * Runs Kubernetes' own tests against a cluster and returns their results. They mostly wait, so that
 * `testsPerCore` of them run at the same time.
 *
 * *Cost:* ten minutes on two cores for the default selection.
 *
 * Errors: no test was selected; the runner ended without a report, with the end of its log.
 */
export async function runTests(
  cluster: Cluster,
  paths: ProgramPaths,
  { selection, testsPerCore = 4 }: { readonly selection: Selection; readonly testsPerCore?: number | undefined },
): Promise<readonly TestResult[]> {
  const { laboratory, addresses, kubectl } = cluster;
  const folder = join(cluster.folder, "tests");
  mkdirSync(folder, { recursive: true });
  const [address = ""] = addresses.controlPlane;
  const command = [
    paths.ginkgo,
    `--procs=${testsPerCore * availableParallelism()}`,
    `--focus=${selection.focus.source}`,
    ...selection.excluded.map(({ pattern }) => `--skip=${goPattern(pattern)}`),
    // A guest on a busy machine needs more than an hour.
    "--timeout=150m",
    "--no-color",
    "-v",
    `--output-dir=${folder}`,
    "--json-report=report.json",
    paths["e2e.test"],
    "--",
    "--provider=skeleton",
    `--kubeconfig=${kubectl.kubeconfig}`,
    `--kubectl-path=${kubectl.path}`,
    `--host=https://${hostAndPort(address, apiServerPort)}`,
    "--node-os-distro=custom",
    `--num-nodes=${addresses.nodes.length}`,
  ];
  const log = join(folder, "tests.log");
  const runner = laboratory.start(controlPlaneName, ["sh", "-c", 'exec "$@" >"$0" 2>&1 </dev/null', log, ...command], {
    HOME: folder,
  });
  await once(runner, "exit");
  let report: string;
  try {
    report = readFileSync(join(folder, "report.json"), "utf8");
  } catch (cause) {
    const end = readFileSync(log, "utf8").trimEnd().split("\n").slice(-20).join("\n");
    throw new Error(`the tests ended without a report:\n${end}`, { cause });
  }
  const results = readReport(report, selection);
  if (results.length === 0) throw new Error(`no test matches ${selection.focus}`);
  return results;
}

/** Returns a regular expression as Go writes it: flags are part of the text. */
function goPattern(pattern: RegExp): string {
  return pattern.ignoreCase ? `(?i)${pattern.source}` : pattern.source;
}
