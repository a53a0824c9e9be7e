import { join } from "node:path";
import { defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** Files that take a minute or more begin first, so that no worker ends long after the other. */
class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const isLong = ({ moduleId }: TestSpecification): boolean => /kernel\/(faults\/)?kpng-/.test(moduleId);
    const sorted = await super.sort(files);
    return [...sorted.filter(isLong), ...sorted.filter((file) => !isLong(file))];
  }
}

export default defineConfig({
  // Examples import the kit by the name of its npm package, which is built only when it is published.
  resolve: {
    alias: [
      {
        find: /^@kpng\/backend-kit$/,
        replacement: join(import.meta.dirname, "services/backend-kit/src/index.ts"),
      },
    ],
  },
  test: {
    include: ["services/*/src/**/*.test.ts", "test/**/*.test.ts"],
    // A test machine may have only two cores. Tests wait for processes and packets a third of the time.
    maxWorkers: 3,
    sequence: { sequencer: LongestFirst },
    // Hundreds of processes start from the same sources. Stripping the types and compiling only once saves half of the
    // CPU time of a start.
    env: { NODE_COMPILE_CACHE: join(import.meta.dirname, "node_modules/.cache/node-compile") },
    // A poll waits for an event that must happen; its duration on a busy machine is not a test result.
    expect: { poll: { timeout: 15_000 } },
    testTimeout: 30_000,
    hookTimeout: 60_000,
  },
});
