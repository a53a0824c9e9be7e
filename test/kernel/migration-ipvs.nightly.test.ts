import { describeGuest } from "./ipvs/describe-guest.ts";
import { migrationChecks } from "./ipvs/migration-checks.ts";
import { killPoints, killSeed } from "./kill-points.ts";

// `npm run e2e -- --backend ipvs --move` moves nodes from kube-proxy.
describeGuest("a node moves to kpng-ipvs and back, and kpng-ipvs is killed", {
  program: "test/kernel/ipvs/migration-main.ts",
  names: Object.values(migrationChecks),
  environment: { KPNG_KILL_POINTS: String(killPoints(3)), KPNG_KILL_SEED: String(killSeed) },
});
