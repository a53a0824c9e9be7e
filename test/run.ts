import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import type { FileResult, RunResults } from "./results-reporter.ts";

/**
 * Runs all checks and tests: `npm test`. With `--quick`, `npm run check`, it leaves out the tests that need a kernel, a
 * cluster, a package registry or containers.
 *
 * The last line of output is `N passed, N failed, N skipped`, where each check counts as one test. The exit status is 1
 * if anything failed. A test counts as failed if it failed twice: see `runVitest`.
 */
const isQuick = process.argv.includes("--quick");

interface Counts {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

interface Check {
  readonly name: string;
  readonly command: readonly string[];
  /** Printed when the check fails: how to fix the cause. */
  readonly remedy: string;
}

const checks: readonly Check[] = [
  { name: "format and lint", command: ["biome", "ci", "."], remedy: "npx biome check --write ." },
  { name: "types", command: ["tsc", "-p", "."], remedy: "see the messages above" },
  {
    name: "types of the status page",
    command: ["tsc", "-p", "services/watcher/src/page/browser"],
    remedy: "see the messages above",
  },
  { name: "proto lint", command: ["buf", "lint"], remedy: "see the messages above" },
  {
    name: "proto compatibility",
    command: ["buf", "breaking", "--against", "proto/released.binpb"],
    remedy: "keep the names and numbers of released fields",
  },
  { name: "generated code", command: ["node", "test/generated-code.ts"], remedy: "npx buf generate" },
  {
    name: "status page",
    command: ["node", "deploy/page/make.ts", "--check"],
    remedy: "node deploy/page/make.ts (with node_modules/.bin first on the PATH)",
  },
];

/** Globs of the tests that need a kernel, a cluster, a registry, containers, or many processes. */
const slowTests = [
  ...[
    "kernel",
    "cluster",
    "peer/kube-proxy",
    "scale",
    "deploy",
    "documents",
    "package",
    "process",
    "monitoring",
    "e2e",
    "manifests",
    "page",
    "version-skew",
  ].map((folder) => `test/${folder}/**`),
  "services/**/*.kernel.test.ts",
];

async function main(): Promise<void> {
  const results: Counts[] = [];
  for (const check of checks) results.push(await runCheck(check));
  results.push(await runVitest());
  const sum = (key: keyof Counts): number => results.reduce((total, result) => total + result[key], 0);
  process.stdout.write(`\n${sum("passed")} passed, ${sum("failed")} failed, ${sum("skipped")} skipped\n`);
  process.exitCode = sum("failed") === 0 ? 0 : 1;
}

async function runCheck({ name, command, remedy }: Check): Promise<Counts> {
  const startedAt = performance.now();
  const code = await run(command);
  const elapsed = `${((performance.now() - startedAt) / 1000).toFixed(1)} s`;
  process.stdout.write(code === 0 ? `✓ ${name} (${elapsed})\n` : `✗ ${name} (${elapsed}): ${remedy}\n`);
  return { passed: code === 0 ? 1 : 0, failed: code === 0 ? 0 : 1, skipped: 0 };
}

/** Above this number of files with failures, the cause is not the load of the machine, and nothing is repeated. */
const maxRepeatedFiles = 8;

/**
 * Runs the tests. Files with failures run once more, one at a time: most tests start processes, and the machine may be
 * busy with others. The second result counts, and what failed only once is named.
 */
async function runVitest(): Promise<Counts> {
  const first = await runFiles(isQuick ? slowTests.flatMap((glob) => ["--exclude", glob]) : []);
  const failing = first.files.filter(({ isFailed }) => isFailed).map(({ path }) => path);
  if (!first.isComplete || failing.length === 0 || failing.length > maxRepeatedFiles) return count(first);
  process.stdout.write(`\nrepeating ${failing.length} files with failures, one at a time\n`);
  const second = await runFiles(["--no-file-parallelism", ...failing]);
  const failures = new Set(second.files.flatMap(failuresIn));
  const intermittent = first.files.flatMap(failuresIn).filter((name) => !failures.has(name));
  for (const name of intermittent) process.stdout.write(`intermittent: failed, then passed alone: ${name}\n`);
  return count({
    files: [...first.files.filter(({ isFailed }) => !isFailed), ...second.files],
    isComplete: second.isComplete && second.files.length === failing.length,
    unhandledErrors: first.unhandledErrors + second.unhandledErrors,
  });
}

async function runFiles(args: readonly string[]): Promise<RunResults> {
  const folder = mkdtempSync(join(tmpdir(), "kpng-test-"));
  const file = join(folder, "results.json");
  try {
    const reporters = ["--reporter=default", "--reporter=./test/results-reporter.ts"];
    await run(["vitest", "run", ...reporters, ...args], { KPNG_TEST_RESULTS: file });
    return JSON.parse(readFileSync(file, "utf8")) as RunResults;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function failuresIn({ path, tests }: FileResult): readonly string[] {
  return tests.filter(({ state }) => state === "failed").map(({ name }) => `${relative(process.cwd(), path)}: ${name}`);
}

/** An incomplete run counts as one failure more. */
function count({ files, isComplete, unhandledErrors }: RunResults): Counts {
  const states = files.flatMap(({ tests }) => tests.map(({ state }) => state));
  const passed = states.filter((state) => state === "passed").length;
  const failed = states.filter((state) => state === "failed").length;
  // Files that could not be loaded, or whose set-up failed.
  const broken = files.filter(({ isFailed, tests }) => isFailed && tests.every(({ state }) => state !== "failed"));
  const others = broken.length + unhandledErrors + (isComplete ? 0 : 1);
  return { passed, failed: failed + others, skipped: states.length - passed - failed };
}

function run([command = "", ...args]: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<number> {
  const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ["ignore", "inherit", "inherit"] });
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code) => resolve(code ?? 1));
  });
}

await main();
