import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, relative, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { until } from "../../cluster/until.ts";
import { staticPodsGuide } from "../../manifests/install-guide.ts";
import { type Cluster, startControlPlane } from "../cluster/cluster.ts";
import type { Backend } from "../proxy/images.ts";
import { manifests } from "../proxy/installation.ts";
import { Probe, timed } from "./probe.ts";

const kubeSystem = "--namespace=kube-system";

/** Duration of the step without watchers. */
const withoutWatchersMs = 30_000;

/**
 * Takes away what an installed kpng depends on, one thing after the other, and checks that Services work all the time,
 * or again without help. Prints what each step took.
 *
 * Errors: the first step that does not succeed within three minutes, or connections that failed where none may.
 */
export async function recover(cluster: Cluster, backend: Backend): Promise<void> {
  const { kubectl, controlPlane, nodes } = cluster;
  const [first] = nodes;
  if (first === undefined) throw new Error("the cluster has no nodes");
  const print = (step: string, measured: string): void => void process.stdout.write(`${step}: ${measured}\n`);
  const probe = await Probe.create(cluster, "probe");

  await kubectl.run(["scale", "deployment/kpng-watcher", kubeSystem, "--replicas=0"]);
  const watchers = ["get", "pods", kubeSystem, "--selector=app.kubernetes.io/component=watcher", "--output=name"];
  await until("all watchers are gone", async () => (await kubectl.run(watchers)) === "", 180_000);
  print("no watcher", await probe.load(AbortSignal.timeout(withoutWatchersMs)));

  await controlPlane.apiServer.stop();
  // A running backend would repair its rules. The brackets keep the pattern from finding pkill's parent.
  const signal = (name: string) => first.run(["pkill", `-${name}`, "--full", `[k]png-${backend}`]);
  await signal("STOP");
  await first.run(["sh", "-c", ruleLosses[backend]]);
  if (await probe.isAnswered(first)) throw new Error("the Service answers although the rules were removed");
  await signal("KILL");
  print("no API server either, rules lost, backend restarted by kubelet", await probe.untilAnswered(first));

  await first.kill();
  await first.start();
  await startControlPlane(controlPlane, kubectl);
  print("node rebooted without API server and watcher; after the API server is back", await probe.untilAnswered(first));

  await kubectl.run(["scale", "deployment/kpng-watcher", kubeSystem, "--replicas=2"]);
  print("watchers back; until a new Service works on every node", await timed(() => Probe.create(cluster, "after")));

  // The guide is about kpng-nft.
  if (backend !== "nft") return;
  await useStaticPods(cluster);
  const last = await Probe.create(cluster, "last");
  // What a node reads after its reboot is what it saved.
  await sleep(2_000);
  await controlPlane.apiServer.stop();
  await first.kill();
  await first.start();
  print("static pods, node rebooted, still without the API server", await last.untilAnswered(first));
  await startControlPlane(controlPlane, kubectl);
}

/** Commands that remove all rules of a backend, as another program might, so that only the saved view helps. */
const ruleLosses: Readonly<Record<Backend, string>> = {
  iptables: "iptables -t nat -F && iptables -t nat -X",
  nft: "nft flush ruleset",
  ipvs: "ipvsadm -C",
  // Its rules are the process itself, which is stopped now.
  userspace: "true",
  ebpf: "rm -r /sys/fs/bpf/*",
};

/**
 * Replaces the DaemonSet of kpng-nft by static pods, in the steps of docs/guides/static-pods.md, and waits until they
 * are ready on every node: a rebooted kubelet starts only static pods while there is no API server.
 */
async function useStaticPods({ kubectl, nodes, folder }: Cluster): Promise<void> {
  const component = join(folder, "client-certificates");
  mkdirSync(component);
  const kustomization = {
    apiVersion: "kustomize.config.k8s.io/v1beta1",
    kind: "Kustomization",
    resources: [relative(component, join(manifests, "watcher"))],
    components: [relative(component, join(manifests, "components/client-certificates"))],
  };
  writeFileSync(join(component, "kustomization.yaml"), JSON.stringify(kustomization));
  await kubectl.run(["apply", "--kustomize", component]);
  await kubectl.run(["rollout", "status", kubeSystem, "deployment/kpng-watcher", "--timeout=50s"]);

  const config = JSON.parse(await kubectl.run(["get", "configmap", "kpng", kubeSystem, "--output=json"]));
  const manifest = staticPodsGuide()
    .pod.replace("registry.example/kpng/", "")
    .replace("https://10.0.0.11:12090", config.data.watchers)
    .replace("10.244.0.0/16", config.data["cluster-cidr"]);
  await kubectl.run(["delete", "daemonset", "kpng-nft", kubeSystem]);
  const certificates = join(folder, "certificates");
  for (const node of nodes) {
    const program = resolve(import.meta.dirname, "../../../services/cli/src/main.ts");
    const options = ["--right", `kpng://node/${node.name}`, "--folder", certificates];
    execFileSync(process.execPath, [program, "certificates", "client", node.name, ...options], { stdio: "pipe" });
    const write = (path: string, text: string) => node.run(["sh", "-c", 'printf %s "$1" >"$0"', path, text]);
    await node.run(["mkdir", "-p", "/etc/kpng"]);
    for (const [from, to] of [
      ["ca.crt", "ca.crt"],
      [`${node.name}.crt`, "node.crt"],
      [`${node.name}.key`, "node.key"],
    ]) {
      await write(`/etc/kpng/${to}`, readFileSync(join(certificates, from ?? ""), "utf8"));
    }
    // Renamed, because a kubelet reads a file as soon as it appears.
    await write(`${node.folder}/kpng-nft.yaml`, manifest);
    await node.run(["mv", `${node.folder}/kpng-nft.yaml`, `${node.folder}/static-pods`]);
  }
  const pods = nodes.map(({ name }) => `pod/kpng-nft-${name}`);
  const wait = ["wait", kubeSystem, "--for=condition=Ready", "--timeout=5s", ...pods];
  await until("the static pods are ready", async () => (await kubectl.run(wait)) !== "", 180_000);
}
