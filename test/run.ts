import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/**
 * All checks and tests: `npm test`; with `--quick` those without kernel, cluster, package registry and containers:
 * `npm run check`. Ends with a line `N passed, N failed, N skipped`, in which each check counts as one test.
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
  /** What to do when it fails. */
  readonly remedy: string;
}

const checks: readonly Check[] = [
  { name: "format and lint", command: ["biome", "ci", "."], remedy: "npx biome check --write ." },
  { name: "types", command: ["tsc", "-p", "."], remedy: "see the messages above" },
  { name: "proto lint", command: ["buf", "lint"], remedy: "see the messages above" },
  {
    name: "proto compatibility",
    command: ["buf", "breaking", "--against", "proto/released.binpb"],
    remedy: "keep names and numbers; a released field never changes",
  },
  { name: "generated code", command: ["node", "test/generated-code.ts"], remedy: "npx buf generate" },
];

/** What needs a kernel, a cluster, a registry, containers, or many processes. */
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
    // A file that cannot even be loaded has no tests that could fail.
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
