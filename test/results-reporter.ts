import { writeFileSync } from "node:fs";
import { relative } from "node:path";
import type { Reporter, SerializedError, TestModule, TestRunEndReason } from "vitest/node";

/** The numbers of tests of a run by how they ended. */
export interface Counts {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

/**
 * A reporter for Vitest that prints the slowest files and the skipped tests, and writes `Counts` to the file named by
 * KPNG_TEST_RESULTS for `run.ts`. Vitest loads it by its path.
 */
export default class ResultsReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], errors: readonly SerializedError[], reason: TestRunEndReason): void {
    const pathOf = ({ moduleId }: TestModule): string => relative(process.cwd(), moduleId);
    const durationOf = (module: TestModule): number => module.diagnostic().duration;
    process.stdout.write("\nslowest files:\n");
    for (const module of modules.toSorted((a, b) => durationOf(b) - durationOf(a)).slice(0, 20)) {
      process.stdout.write(`${(durationOf(module) / 1_000).toFixed(1).padStart(7)} s  ${pathOf(module)}\n`);
    }
    const isInterrupted = reason === "interrupted" || modules.length === 0;
    // An incomplete run counts as a failure, as does each error outside of all tests, in a timer that a test left behind.
    let [passed, failed, skipped] = [0, errors.length + (isInterrupted ? 1 : 0), 0];
    for (const module of modules) {
      const tests = [...module.children.allTests()].map((test) => ({ name: test.fullName, result: test.result() }));
      for (const { name, result } of tests) {
        if (result.state === "passed") passed += 1;
        else if (result.state === "failed") failed += 1;
        else {
          skipped += 1;
          // The reason is in the name of the test, or in the note that it gave.
          const note = result.state === "skipped" && result.note !== undefined ? ` (skipped: ${result.note})` : "";
          process.stdout.write(`\nskipped: ${pathOf(module)}: ${name}${note}`);
        }
      }
      // The file could not be loaded, or its set-up failed.
      if (module.state() === "failed" && tests.every(({ result }) => result.state !== "failed")) failed += 1;
    }
    process.stdout.write("\n");
    const file = process.env.KPNG_TEST_RESULTS;
    if (file === undefined) throw new Error("KPNG_TEST_RESULTS is not set");
    writeFileSync(file, JSON.stringify({ passed, failed, skipped } satisfies Counts));
  }
}
