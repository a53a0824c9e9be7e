/** Names of the checks of `migration-main.ts`. */
export const migrationChecks = {
  kubeProxy: "from kube-proxy in ipvs mode to kpng-ipvs and back, no connection is lost, and nothing is left",
  kpngIptables: "from kpng-iptables to kpng-ipvs and back, no connection is lost, and nothing is left",
  handOver: "kpng-ipvs hands its virtual servers over and takes them back, and no connection is lost",
} as const;

/** Checks of `npm test`. An API server and kube-proxy take minutes in a guest, because they share its CPU. */
export const quickMigrations: ReadonlySet<string> = new Set([migrationChecks.kpngIptables, migrationChecks.handOver]);
