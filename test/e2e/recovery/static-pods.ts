import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join, relative, resolve } from "node:path";
import { until } from "../../cluster/until.ts";
import { staticPodsGuide } from "../../manifests/install-guide.ts";
import type { Cluster } from "../cluster/cluster.ts";
import { manifests } from "../proxy/install.ts";
import { runOn } from "../proxy/processes.ts";

const repository = resolve(import.meta.dirname, "../../..");
const nodeFolder = "/etc/kpng";

/**
 * Replaces the DaemonSet of kpng-nft by static pods, in the steps of docs/guides/static-pods.md, and waits until they
 * are ready on every node: a rebooted kubelet starts only static pods while there is no API server.
 */
export async function useStaticPods(cluster: Cluster, backend: "nft"): Promise<void> {
  const { kubectl, nodes, folder } = cluster;
  const kubeSystem = "--namespace=kube-system";
  const watcher = "deployment/kpng-watcher";
  const component = join(cluster.folder, "client-certificates");
  mkdirSync(component);
  writeFileSync(
    join(component, "kustomization.yaml"),
    JSON.stringify({
      apiVersion: "kustomize.config.k8s.io/v1beta1",
      kind: "Kustomization",
      resources: [relative(component, join(manifests, "watcher"))],
      components: [relative(component, join(manifests, "components/client-certificates"))],
    }),
  );
  await kubectl.run(["apply", "--kustomize", component]);
  await kubectl.run(["rollout", "status", kubeSystem, watcher, "--timeout=120s"]);

  const config = JSON.parse(await kubectl.run(["get", "configmap", "kpng", kubeSystem, "--output=json"]));
  const manifestFile = join(folder, "static-pod.yaml");
  const manifest = staticPodsGuide()
    .pod.replace("registry.example/kpng/", "")
    .replace("https://10.0.0.11:12090", config.data.watchers)
    .replace("10.244.0.0/16", config.data["cluster-cidr"]);
  writeFileSync(manifestFile, manifest);
  await kubectl.run(["delete", "daemonset", `kpng-${backend}`, kubeSystem]);
  const certificates = join(folder, "certificates");
  for (const node of nodes) {
    const program = [join(repository, "services/cli/src/main.ts"), "certificates", "client", node.name];
    const options = ["--right", `kpng://node/${node.name}`, "--folder", certificates];
    execFileSync(process.execPath, [...program, ...options], { stdio: "pipe" });
    await runOn(node, ["mkdir", "-p", nodeFolder]);
    await runOn(node, ["cp", join(certificates, "ca.crt"), nodeFolder]);
    for (const end of ["crt", "key"]) {
      await runOn(node, ["cp", join(certificates, `${node.name}.${end}`), join(nodeFolder, `node.${end}`)]);
    }
    // Renamed, because a kubelet reads a file as soon as it appears.
    const unfinished = join(node.folder, `kpng-${backend}.yaml`);
    await runOn(node, ["cp", manifestFile, unfinished]);
    await runOn(node, ["mv", unfinished, join(node.folder, "static-pods")]);
  }
  await until(
    "the static pods are ready",
    async () => {
      const pods = nodes.map(({ name }) => `pod/kpng-${backend}-${name}`);
      await kubectl.run(["wait", kubeSystem, "--for=condition=Ready", "--timeout=5s", ...pods]);
      return true;
    },
    180_000,
  );
}
