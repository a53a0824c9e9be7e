import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/**
 * Runs all checks and tests: `npm test`. With `--quick`, `npm run check`, it leaves out the tests that need a kernel, a
 * cluster, a package registry or containers.
 *
 * The last line of output is `N passed, N failed, N skipped`, where each check counts as one test. The exit status is 1
 * if anything failed.
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
  { name: "proto lint", command: ["buf", "lint"], remedy: "see the messages above" },
  {
    name: "proto compatibility",
    command: ["buf", "breaking", "--against", "proto/released.binpb"],
    remedy: "keep the names and numbers of released fields",
  },
  { name: "generated code", command: ["node", "test/generated-code.ts"], remedy: "npx buf generate" },
];

/** Globs of the tests that need a kernel, a cluster, a registry, containers, or many processes. */
const slowTests = [
  ...["kernel", "cluster", "peer/kube-proxy", "scale", "deploy", "package", "process", "monitoring"].map(
    (folder) => `test/${folder}/**`,
  ),
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

async function runVitest(): Promise<Counts> {
  const folder = mkdtempSync(join(tmpdir(), "kpng-test-"));
  const file = join(folder, "results.json");
  try {
    const excludes = isQuick ? slowTests.flatMap((glob) => ["--exclude", glob]) : [];
    const code = await run([
      "vitest",
      "run",
      "--reporter=default",
      "--reporter=json",
      `--outputFile.json=${file}`,
      ...excludes,
    ]);
    const { numPassedTests, numFailedTests, numPendingTests, numTodoTests, numFailedTestSuites, success } = JSON.parse(
      readFileSync(file, "utf8"),
    ) as Record<string, number> & { success: boolean };
    const failed = numFailedTests ?? 0;
    // A file that cannot be loaded has no tests, so Vitest counts only a failed suite.
    const unloaded = failed === 0 && (code !== 0 || !success) ? Math.max(1, numFailedTestSuites ?? 0) : 0;
    return {
      passed: numPassedTests ?? 0,
      failed: failed + unloaded,
      skipped: (numPendingTests ?? 0) + (numTodoTests ?? 0),
    };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function run([command = "", ...args]: readonly string[]): Promise<number> {
  const child = spawn(command, args, { stdio: ["ignore", "inherit", "inherit"] });
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code) => resolve(code ?? 1));
  });
}

await main();
