import { spawnSync } from "node:child_process";

/**
 * `npm run soak`: runs soak.nightly.test.ts for ten minutes; `npm run soak -- MINUTES` for longer. SOAK_SEED repeats a
 * run.
 */
const minutes = Number(process.argv[2] ?? 10);
const { status } = spawnSync("vitest", ["run", "test/kernel/soak.nightly.test.ts"], {
  stdio: "inherit",
  env: { SOAK_SECONDS: String(minutes * 20), ...process.env },
});
process.exit(status ?? 1);
