import type { Cluster } from "../cluster/cluster.ts";
import type { ProxyName } from "../options.ts";
import { type ProgramPaths, pathOf } from "../program-paths.ts";
import { type InstallationTimes, untilServicesWork } from "../proxy/install.ts";
import { prepareCluster } from "../proxy/kpng.ts";
import { kubeProxyCommand } from "../proxy/kube-proxy.ts";

/**
 * Installs kube-proxy in ipvs mode as the DaemonSet that installers of clusters make, so that documented commands
 * apply, and prepares the cluster for kpng. Its container takes the programs from the node.
 */
export async function installKubeProxyPods(
  _proxy: ProxyName,
  cluster: Cluster,
  paths: ProgramPaths,
): Promise<InstallationTimes> {
  const startedMs = performance.now();
  await prepareCluster(cluster);
  const labels = { "k8s-app": "kube-proxy" };
  const node = { name: "NODE", valueFrom: { fieldRef: { fieldPath: "spec.nodeName" } } };
  await cluster.kubectl.apply([
    {
      apiVersion: "apps/v1",
      kind: "DaemonSet",
      metadata: { name: "kube-proxy", namespace: "kube-system", labels },
      spec: {
        selector: { matchLabels: labels },
        template: {
          metadata: { labels },
          spec: {
            hostNetwork: true,
            priorityClassName: "system-node-critical",
            tolerations: [{ operator: "Exists" }],
            containers: [
              {
                name: "kube-proxy",
                image: "registry.k8s.io/e2e-test-images/busybox:1.37.0-1",
                command: [
                  "chroot",
                  "/node",
                  ...kubeProxyCommand(cluster, pathOf(paths, "kube-proxy"), "ipvs", "$(NODE)"),
                ],
                env: [node],
                securityContext: { privileged: true },
                volumeMounts: [{ name: "node", mountPath: "/node" }],
              },
            ],
            volumes: [{ name: "node", hostPath: { path: "/" } }],
          },
        },
      },
    },
  ]);
  return untilServicesWork(cluster, startedMs);
}
