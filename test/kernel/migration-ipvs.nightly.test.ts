import { whyNoKubeProxy } from "./backend/kube-proxy.ts";
import { describeGuest } from "./ipvs/describe-guest.ts";
import { migrationChecks } from "./ipvs/migration-checks.ts";
import { killPoints, killSeed } from "./kill-points.ts";

/**
 * The checks to run, as a regular expression of their names. Default: all without kube-proxy, because an API server and
 * kube-proxy take minutes in a guest, whose CPU they share.
 */
const wanted = new RegExp(process.env.KPNG_MIGRATIONS ?? "^(?!.*kube-proxy)");
const names = Object.values(migrationChecks).filter((name) => wanted.test(name));
const hasKubeProxy = names.includes(migrationChecks.kubeProxy);

// The steps are those of docs/guides/migrate-from-kube-proxy.md.
describeGuest("a node moves to kpng-ipvs and back, and kpng-ipvs is killed", {
  program: "test/kernel/ipvs/migration-main.ts",
  names,
  whyNot: hasKubeProxy ? await whyNoKubeProxy() : undefined,
  memoryMiB: hasKubeProxy ? 3_072 : 2_048,
  environment: { KPNG_KILL_POINTS: String(killPoints(3)), KPNG_KILL_SEED: String(killSeed) },
});
