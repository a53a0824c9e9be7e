import { join } from "node:path";
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["services/*/src/**/*.test.ts", "test/**/*.test.ts"],
    // Tests start servers and processes; two cores are all that a test machine may have.
    maxWorkers: 2,
    // Hundreds of processes start from the same sources: to take types out and to compile once is half of a start's CPU.
    env: { NODE_COMPILE_CACHE: join(import.meta.dirname, "node_modules/.cache/node-compile") },
    // A poll waits for what must come; how long it takes on a busy machine says nothing.
    expect: { poll: { timeout: 15_000 } },
    testTimeout: 30_000,
    hookTimeout: 60_000,
  },
});
