import { writeFileSync } from "node:fs";
import type { Reporter, SerializedError, TestModule, TestRunEndReason } from "vitest/node";

/** The results of a run of Vitest, which `run.ts` reads. */
export interface RunResults {
  readonly files: readonly FileResult[];
  /** False if the run ended before all tests had. */
  readonly isComplete: boolean;
  /** Errors outside of all tests and files, for example in a timer that a test left behind. */
  readonly unhandledErrors: number;
}

/** The results of a test file. */
export interface FileResult {
  /** The absolute path. */
  readonly path: string;
  /** True if a test failed, or if the file could not be loaded. */
  readonly isFailed: boolean;
  /** Duration of its tests and hooks, in milliseconds. */
  readonly durationMs: number;
  readonly tests: readonly TestOutcome[];
}

interface TestOutcome {
  readonly name: string;
  readonly state: "passed" | "failed" | "skipped" | "pending";
  /** Why a test skipped itself. */
  readonly note: string | undefined;
}

/**
 * A reporter for Vitest that writes `RunResults` to the file named by KPNG_TEST_RESULTS. Vitest loads it by its path.
 * Vitest's own JSON report does not contain unhandled errors.
 */
export default class ResultsReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], errors: readonly SerializedError[], reason: TestRunEndReason): void {
    const file = process.env.KPNG_TEST_RESULTS;
    if (file === undefined) throw new Error("KPNG_TEST_RESULTS is not set");
    const files = modules.map((module) => ({
      path: module.moduleId,
      isFailed: module.state() === "failed",
      durationMs: module.diagnostic().duration,
      tests: [...module.children.allTests()].map((test) => {
        const result = test.result();
        return { name: test.fullName, state: result.state, note: result.state === "skipped" ? result.note : undefined };
      }),
    }));
    const isComplete = reason !== "interrupted" && files.length > 0;
    const results: RunResults = { files, isComplete, unhandledErrors: errors.length };
    writeFileSync(file, JSON.stringify(results));
  }
}
