import { describeGuest } from "./ipvs/describe-guest.ts";
import { connectionCount, enduranceChecks, killOptions } from "./ipvs/endurance-checks.ts";

describeGuest("kpng-ipvs is disturbed", {
  program: "test/kernel/ipvs/endurance-main.ts",
  names: Object.values(enduranceChecks),
  memoryMiB: 2_048,
  environment: {
    KPNG_KILL_POINTS: String(killOptions.points),
    KPNG_SHORT_CONNECTIONS: String(connectionCount),
    KPNG_KILL_SEED: String(killOptions.seed),
  },
});
