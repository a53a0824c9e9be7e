import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";

/**
 * `npm run soak`: runs soak.nightly.test.ts for ten minutes, or for SOAK_SECONDS, in equal parts with each backend and variant;
 * SOAK_SEED repeats a run. `npm run soak -- NAME` selects one: iptables-nft, iptables-legacy or kpng-nft.
 * `npm run soak -- cluster` disturbs a whole cluster instead: see test/e2e/soak. `npm run soak -- replicas` plays
 * random histories of replicas that are frozen, restarted and restored, SEEDS of them (1 000); `npm test` plays 10.
 * `npm run soak -- ipvs` kills kpng-ipvs 60 times in a guest, opens 100 000 short connections through it, and moves a
 * node from kube-proxy in ipvs mode to it and back; KPNG_KILL_POINTS and KPNG_SHORT_CONNECTIONS set other numbers.
 */
const [, , name, ...others] = process.argv;
if (name === "cluster") {
  const program = fileURLToPath(new URL("../e2e/soak/main.ts", import.meta.url));
  process.exit(spawnSync(process.execPath, [program, ...others], { stdio: "inherit" }).status ?? 1);
}
if (name === "ipvs") {
  const files = ["kpng-ipvs-endurance", "migration-ipvs"].map((file) => `test/kernel/${file}.test.ts`);
  const numbers = { KPNG_KILL_POINTS: "60", KPNG_SHORT_CONNECTIONS: "100000", KPNG_MIGRATIONS: "." };
  const { status } = spawnSync("vitest", ["run", "--no-file-parallelism", ...files], {
    stdio: "inherit",
    env: { ...numbers, KPNG_GUEST_MS: "3600000", ...process.env },
  });
  process.exit(status ?? 1);
}
if (name === "replicas") {
  const { status } = spawnSync(
    "vitest",
    ["run", "services/watcher/src/store/never-backwards.slow.test.ts", "--testTimeout", "0"],
    { stdio: "inherit", env: { SEEDS: "1000", ...process.env } },
  );
  process.exit(status ?? 1);
}
const total = Number(process.env.SOAK_SECONDS ?? 600);
const { status } = spawnSync(
  "vitest",
  ["run", "test/kernel/soak.nightly.test.ts", ...(name === undefined ? [] : ["--testNamePattern", name])],
  {
    stdio: "inherit",
    env: { ...process.env, SOAK_SECONDS: String(name === undefined ? total / 3 : total) },
  },
);
process.exit(status ?? 1);
