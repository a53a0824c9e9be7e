import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { reasonOf } from "@kpng/process/log.ts";
import { checkOut, findPreviousVersion } from "../../version-skew/mixed-versions.nightly.test.ts";
import { startCluster } from "../cluster/cluster.ts";
import { makeTestImages } from "../images/test-images.ts";
import { type Backend, backends, buildImages } from "../proxy/images.ts";
import { installProxy } from "../proxy/install.ts";
import { findPrograms, whyNoCluster } from "../requirements.ts";
import { changesPerSecond, problemsOf, type SoakOptions, type SoakResult, soak } from "./soak.ts";

const help = `Usage: npm run soak -- cluster [OPTION…]

Disturbs kpng on a real cluster of three nodes: kills watchers, backends and kubelets, restarts the API server, and cuts
connections, while 50 changes a second arrive. At the end, the rules must be those of the cluster's state, no connection
may have failed, and memory must not have grown. Needs what \`npm run e2e\` needs.

  --backend NAME     ${backends.join(" or ")} (default nft)
  --seconds NUMBER   duration of the disturbances (default 600)
  --seed NUMBER      repeats a run
  --previous         also mix images of the previous version with these: the newest tag, or the commit in KPNG_PREVIOUS
  --keep             keep the logs of the cluster, and print their folder
  --help             print this
`;

type Options = Omit<SoakOptions, "log"> & { readonly keep: boolean };

function parseOptions(args: readonly string[]): Options | undefined {
  const { values } = parseArgs({
    args: [...args],
    options: {
      backend: { type: "string", default: "nft" },
      seconds: { type: "string", default: "600" },
      seed: { type: "string", default: String(Date.now() % 1_000_000) },
      previous: { type: "boolean", default: false },
      keep: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) return undefined;
  const backend = backends.find((each) => each === values.backend);
  if (backend === undefined) throw new Error(`--backend ${values.backend}: expected ${backends.join(" or ")}`);
  const [seconds, seed] = [Number(values.seconds), Number(values.seed)];
  if (!(seconds >= 10)) throw new Error(`--seconds ${values.seconds}: expected at least 10`);
  if (!Number.isInteger(seed)) throw new Error(`--seed ${values.seed}: expected a whole number`);
  return { backend, durationMs: seconds * 1000, seed, hasPrevious: values.previous, keep: values.keep };
}

/** `npm run soak -- cluster`. The exit status is 1 if something was wrong, and 2 if the soak could not run. */
async function main(): Promise<void> {
  const options = parseOptions(process.argv.slice(2));
  if (options === undefined) return void process.stdout.write(help);
  const reason = whyNoCluster();
  if (reason !== undefined) throw new Error(reason);
  const programs = await findPrograms();
  if (programs.kind === "missing") throw new Error(programs.reason);
  const { paths } = programs;
  const { backend, seed, hasPrevious, keep } = options;
  process.stdout.write(`soak: cluster with kpng-${backend}, --seed ${seed}${hasPrevious ? " --previous" : ""}\n`);
  const earlier = hasPrevious ? await buildPreviousImages(backend) : [];
  const images = { tests: await makeTestImages(paths), proxy: [...(await buildImages(backend)), ...earlier] };
  const cluster = await startCluster({ paths, images, families: ["ipv4"], nodeCount: 3, keepsLogs: keep });
  try {
    if (keep) process.stderr.write(`soak: files in ${cluster.folder}\n`);
    await installProxy(backend, cluster, paths);
    const result = await soak(cluster, { ...options, log: (line) => void process.stderr.write(`soak: ${line}\n`) });
    process.stdout.write(formatResult(result));
    if (problemsOf(result).length > 0) process.exitCode = 1;
  } finally {
    await cluster.stop();
  }
}

/** Builds the images of the previous version, with the tag `previous`. Errors: this clone does not have it. */
async function buildPreviousImages(backend: Backend): Promise<readonly string[]> {
  const previous = findPreviousVersion();
  if (previous.kind === "missing") throw new Error(`--previous: ${previous.reason}`);
  process.stdout.write(`soak: previous version: ${previous.commit}\n`);
  const repository = mkdtempSync(join(tmpdir(), "kpng-previous-"));
  try {
    checkOut(previous.commit, repository);
    return await buildImages(backend, { repository, tag: "previous" });
  } finally {
    rmSync(repository, { recursive: true, force: true });
  }
}

function formatResult(result: SoakResult): string {
  const { changes, traffic, growths, settledMs } = result;
  const problems = problemsOf(result);
  const rate = (changes.accepted * 1000) / changes.durationMs;
  return [
    `${result.disturbances} disturbances; ${changes.accepted} changes accepted (${rate.toFixed(1)}/s of ${changesPerSecond}/s), ${changes.refused} refused, ${changes.unanswered} without an answer`,
    `${traffic.answeredProbes} new connections answered, ${traffic.answeredByFlows} bytes and datagrams over open ones`,
    `rules and packets as the cluster's state says ${(settledMs / 1000).toFixed(1)} s after the end`,
    ...growths.map(({ name, early, late }) => `${name}: ${early.toFixed(0)} MiB early, ${late.toFixed(0)} MiB late`),
    problems.length === 0 ? "nothing wrong" : `${problems.length} problems:`,
    ...problems.slice(0, 50),
    "",
  ].join("\n");
}

try {
  await main();
} catch (error) {
  process.stderr.write(`Error: ${reasonOf(error)}\n`);
  process.exitCode = 2;
}
