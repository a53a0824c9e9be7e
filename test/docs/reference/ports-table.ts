import { type BlockWriter, markdownTable } from "./fill-blocks.ts";

/**
 * Ports that our manifests and documents assign to each backend. They differ from those of kube-proxy (10256, 10249),
 * of other Kubernetes components (kubelet 10248, 10250, 10255; control plane 10257 to 10260) and of each other, so that
 * all can run on one node. The ports for health of service proxies are their defaults.
 */
const deploymentPorts = {
  iptables: { healthz: 10_270, metrics: 10_271 },
  nft: { healthz: 10_272, metrics: 10_273 },
  ipvs: { healthz: 10_274, metrics: 10_275 },
  userspace: { healthz: 10_276, metrics: 10_277 },
  callout: { healthz: 10_280, metrics: 10_281 },
  ebpf: { healthz: 10_284, metrics: 10_285 },
  json: { healthz: 10_282, metrics: 10_283 },
};

/** The ports for health and metrics that deployments give to each backend. */
export const portsTable: BlockWriter = () =>
  markdownTable(
    ["Backend", "Health", "Metrics"],
    Object.entries(deploymentPorts).map(([name, { healthz, metrics }]) => [name, `${healthz}`, `${metrics}`]),
  );
