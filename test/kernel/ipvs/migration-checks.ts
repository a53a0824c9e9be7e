/** Names of the checks of `migration-main.ts`. */
export const migrationChecks = {
  kpngIptables: "from kpng-iptables to kpng-ipvs and back, no connection is lost, and nothing is left",
  takenOver: "what kube-proxy has left goes while kpng-ipvs serves; what it has taken over stays at a cleanup",
  disturbed: "connections and transfers survive removed endpoints, a restart while one drains, and a full resync",
  kills: "killed at random moments, kpng-ipvs leaves no difference once it runs again",
} as const;
