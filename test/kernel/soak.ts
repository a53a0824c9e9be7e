import { spawnSync } from "node:child_process";

/** `npm run soak`: runs soak.test.ts for ten minutes, or for SOAK_SECONDS; SOAK_SEED repeats a run. */
const { SOAK_SECONDS = "600" } = process.env;
const { status } = spawnSync("vitest", ["run", "test/kernel/soak.test.ts"], {
  stdio: "inherit",
  env: { ...process.env, SOAK_SECONDS },
});
process.exit(status ?? 1);
