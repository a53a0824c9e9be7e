import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { until } from "../../cluster/until.ts";
import { readBlocks } from "../../documents/blocks.ts";
import type { Cluster } from "../cluster/cluster.ts";
import type { ProgramPaths } from "../program-paths.ts";
import { kubeProxyCommand, prepareCluster, untilServicesWork, valuesOf } from "../proxy/install.ts";
import { applyConfig, type Installation, manifests } from "../proxy/installation.ts";
import { Probe, timed } from "./probe.ts";

/**
 * Installs kube-proxy in ipvs mode as the DaemonSet that installers of clusters make, and moves every node to kpng-ipvs
 * and back with the commands of docs/guides/migrate-from-kube-proxy.md, while new connections are opened from every node.
 * Prints what each move took.
 *
 * Errors: a step that does not succeed, connections that failed, or what a proxy has left behind.
 */
export async function moveAll(cluster: Cluster, paths: ProgramPaths, { kpng }: Installation): Promise<void> {
  const { kubectl, nodes } = cluster;
  await prepareCluster(cluster, kpng);
  await applyConfig(cluster, valuesOf(cluster));
  await installKubeProxyPods(cluster, paths);
  const { patch, move, kustomization } = readDocument(cluster);
  const probe = await Probe.create(cluster, "probe");
  await kubectl.run(["apply", "--kustomize", join(manifests, "watcher")]);
  await kubectl.runInShell("kubectl --namespace kube-system rollout status deployment/kpng-watcher --timeout 2m");
  await kubectl.runInShell(patch);
  await kubectl.runInShell("kubectl --namespace kube-system rollout status daemonset/kube-proxy --timeout 2m");
  await kubectl.run(["apply", "--kustomize", kustomization]);
  const end = new AbortController();
  const load = probe.load(end.signal);
  load.catch(() => undefined);
  const moveEach = async (what: string, commands: readonly string[]): Promise<void> => {
    for (const { name } of nodes) {
      const took = await timed(async () => {
        for (const command of commands) await runUntilNotEarly(cluster, `node=${name}; ${command}`);
      });
      process.stdout.write(`${name} ${what}: ${took}\n`);
    }
  };
  try {
    await moveEach("moved to kpng-ipvs", move);
    await expectObjects(cluster, ["kube-ipvs0", "KPNGIPVS-"], ["KUBE-CLUSTER-IP", "KUBE-SERVICES", "KUBE-IPVS"]);
    await Probe.create(cluster, "moved");
    // The document has these in words.
    const debug = move.at(-1) ?? "";
    await moveEach("moved back to kube-proxy", [
      "kubectl label --overwrite node $node kpng.example/proxy=none",
      debug.replace("--cleanup-kube-proxy", "--hand-over-to-kube-proxy"),
      "kubectl label node $node kpng.example/proxy-",
      debug.replace("--cleanup-kube-proxy", "--cleanup"),
    ]);
    await expectObjects(cluster, ["kube-ipvs0", "KUBE-SERVICES"], ["KPNGIPVS-"]);
    await Probe.create(cluster, "back");
  } finally {
    end.abort();
  }
  process.stdout.write(`in the meantime: ${await load}\n`);
}

/** The container of kube-proxy takes the programs from the node. */
async function installKubeProxyPods(cluster: Cluster, paths: ProgramPaths): Promise<void> {
  const labels = { "k8s-app": "kube-proxy" };
  const container = {
    name: "kube-proxy",
    image: "registry.k8s.io/e2e-test-images/busybox:1.37.0-1",
    command: ["chroot", "/node", ...kubeProxyCommand(cluster, paths["kube-proxy"], "ipvs", "$(NODE)")],
    env: [{ name: "NODE", valueFrom: { fieldRef: { fieldPath: "spec.nodeName" } } }],
    securityContext: { privileged: true },
    volumeMounts: [{ name: "node", mountPath: "/node" }],
  };
  const pod = {
    hostNetwork: true,
    priorityClassName: "system-node-critical",
    tolerations: [{ operator: "Exists" }],
    containers: [container],
    volumes: [{ name: "node", hostPath: { path: "/" } }],
  };
  await cluster.kubectl.apply([
    {
      apiVersion: "apps/v1",
      kind: "DaemonSet",
      metadata: { name: "kube-proxy", namespace: "kube-system", labels },
      spec: { selector: { matchLabels: labels }, template: { metadata: { labels }, spec: pod } },
    },
  ]);
  await untilServicesWork(cluster, performance.now());
}

/** Returns the commands of docs/guides/migrate-from-kube-proxy.md. Errors: the document has others. */
function readDocument({ folder }: Cluster) {
  const guide = "docs/guides/migrate-from-kube-proxy.md";
  const blocks = readBlocks().filter(({ path }) => path === guide);
  const blockWith = (text: string) =>
    blocks.find(({ commands }) => commands.some((one) => one.includes(text)))?.commands;
  const [patch, move] = [blockWith('"key":"kpng.example/proxy"'), blockWith("--cleanup-kube-proxy")];
  const document = readFileSync(guide, "utf8");
  const yaml = /```yaml\n( *patches:\n[\s\S]*?name: kpng-ipvs\n[\s\S]*?)```/.exec(document)?.[1];
  if (patch === undefined || move === undefined || yaml === undefined)
    throw new Error(`${guide}: no commands for a move from kube-proxy's ipvs mode`);
  const kustomization = join(folder, "my-cluster");
  mkdirSync(kustomization);
  const overlay = relative(kustomization, join(manifests, "overlays/replace-kube-proxy/ipvs"));
  writeFileSync(join(kustomization, "kustomization.yaml"), `resources: [${overlay}]\n${yaml.replace(/^ {3}/gm, "")}`);
  // The image of this repository has no registry.
  const own = move.map((command) => command.replace("registry.example/kpng/", "docker.io/library/"));
  return { patch: patch.join("\n"), move: own.filter((command) => command !== "node=n1"), kustomization };
}

/** Limit for a step that documents say to repeat. */
const repeatMs = 240_000;

/**
 * Runs a command of the document, again while it comes too early. `kubectl debug` does not report how its command has
 * ended, and prints nothing if that was too soon, so its pod is asked.
 */
async function runUntilNotEarly({ kubectl }: Cluster, command: string): Promise<void> {
  if (!command.includes("kubectl debug")) return void (await kubectl.runInShell(command));
  const columns = '--output=jsonpath={range .items[*]}{.metadata.name} {.status.phase}{"\\n"}{end}';
  const findEnd = async (): Promise<RegExpExecArray | undefined> =>
    /^(node-debugger\S*) (Succeeded|Failed)$/m.exec(await kubectl.run(["get", "pods", columns])) ?? undefined;
  const endMs = performance.now() + repeatMs;
  for (;;) {
    await kubectl.runInShell(command);
    const [, name = "", phase] = await until(`${command} has ended`, findEnd, repeatMs);
    const log = await kubectl.run(["logs", name]);
    await kubectl.run(["delete", "pod", name]);
    if (phase === "Succeeded") return;
    if (!log.includes("MOVE_TOO_EARLY") || performance.now() > endMs) throw new Error(`${command}: ${log}`);
  }
}

/** Checks the interfaces, ipsets and chains of every node. Errors: with what is wrong. */
async function expectObjects({ nodes }: Cluster, present: readonly string[], absent: readonly string[]): Promise<void> {
  const rules = ["iptables", "ip6tables"].flatMap((name) => [`${name}-nft-save`, `${name}-legacy-save`]);
  const all = ["ip -oneline link", "ipset list -name", ...rules].join("; ");
  for (const node of nodes) {
    const text = await node.run(["sh", "-c", all]);
    const missing = present.filter((name) => !text.includes(name));
    if (missing.length > 0) throw new Error(`${node.name} has no ${missing}`);
    const left = text.split("\n").filter((line) => absent.some((name) => line.includes(name)));
    if (left.length > 0) throw new Error(`${node.name} still has: ${left.join("; ")}`);
  }
}
