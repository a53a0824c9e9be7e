import { whyNoKubeProxy } from "./backend/kube-proxy.ts";
import { describeGuest } from "./ipvs/describe-guest.ts";
import { migrationChecks, quickMigrations } from "./ipvs/migration-checks.ts";

/** Moves to run, as a regular expression of their names. Default: those of a quick run. */
const wanted = process.env.KPNG_MIGRATIONS;
const names = Object.values(migrationChecks).filter((name) =>
  wanted === undefined ? quickMigrations.has(name) : new RegExp(wanted).test(name),
);
const hasKubeProxy = names.includes(migrationChecks.kubeProxy);

// The steps are those of docs/guides/migrate-from-kube-proxy.md.
describeGuest("a node moves to kpng-ipvs and back", {
  program: "test/kernel/ipvs/migration-main.ts",
  names,
  whyNot: hasKubeProxy ? await whyNoKubeProxy() : undefined,
  memoryMiB: hasKubeProxy ? 3_072 : undefined,
});
