import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { bundlePrograms } from "./process/bundle-programs.ts";
import { bundlesVariable } from "./process/program-file.ts";
import type { Counts } from "./results-reporter.ts";

/**
 * Runs the tests, in one of three sizes:
 *
 * - `--check`, `npm run check`: static checks and fast unit tests, a minute.
 * - `npm test`: also real packets, a real API server, processes and containers, eight minutes.
 * - `--all`, `npm run test:all`: everything, with `KPNG_TESTS=all` in the environment: files named `*.nightly.test.ts`,
 *   and all cases of tests that otherwise have a selection.
 *
 * The last line of output is `N passed, N failed, N skipped`, where each check counts as one test; before it come the
 * slowest files and the skipped tests. The exit status is 1 if anything failed.
 */
type Size = "check" | "standard" | "all";

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
    command: ["tsc", "-p", "services/watcher/src/page"],
    remedy: "see the messages above",
  },
  { name: "proto lint", command: ["buf", "lint"], remedy: "see the messages above" },
  {
    name: "proto compatibility",
    command: ["buf", "breaking", "--against", "proto/released.binpb"],
    remedy: "keep the names and numbers of released fields",
  },
  { name: "generated code", command: ["node", "test/generated-code.ts"], remedy: "npx buf generate" },
];

const nightlyTests = "**/*.nightly.test.ts";

/**
 * Globs of the tests that need a kernel, a cluster, a registry, containers, or many processes, or that wait: unit tests
 * whose file takes over a second are in `*.slow.test.ts`.
 */
const standardTests = [
  "**/*.slow.test.ts",
  "test/{clients,cluster,conformance,deploy,e2e,kernel,manifests,monitoring,page,process,scale}/**",
  "services/**/*.kernel.test.ts",
];

const excluded: Readonly<Record<Size, readonly string[]>> = {
  check: [nightlyTests, ...standardTests],
  standard: [nightlyTests],
  all: [],
};

async function main(): Promise<void> {
  const size = process.argv.includes("--check") ? "check" : process.argv.includes("--all") ? "all" : "standard";
  const results: Counts[] = [];
  for (const check of checks) results.push(await runCheck(check));
  results.push(await runVitest(size));
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

async function runVitest(size: Size): Promise<Counts> {
  const folder = mkdtempSync(join(tmpdir(), "kpng-test-"));
  const file = join(folder, "results.json");
  try {
    const reporters = ["--reporter=default", "--reporter=./test/results-reporter.ts"];
    const globs = excluded[size].flatMap((glob) => ["--exclude", glob]);
    const environment: NodeJS.ProcessEnv = { KPNG_TEST_RESULTS: file };
    if (size === "all") environment.KPNG_TESTS = "all";
    if (size !== "check") {
      bundlePrograms(folder);
      environment[bundlesVariable] = folder;
    }
    await run(["vitest", "run", ...reporters, ...globs], environment);
    if (!existsSync(file)) {
      process.stderr.write("the tests were interrupted\n");
      return { passed: 0, failed: 1, skipped: 0 };
    }
    return JSON.parse(readFileSync(file, "utf8")) as Counts;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function run([command = "", ...args]: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<number> {
  const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ["ignore", "inherit", "inherit"] });
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code) => resolve(code ?? 1));
  });
}

await main();
