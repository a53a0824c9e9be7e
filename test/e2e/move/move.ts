import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { until } from "../../cluster/until.ts";
import { readBlocks } from "../../documents/blocks.ts";
import type { Cluster } from "../cluster/cluster.ts";
import type { ProxyName } from "../options.ts";
import { type ProgramPaths, pathOf } from "../program-paths.ts";
import {
  type InstallationTimes,
  kubeProxyCommand,
  manifests,
  prepareCluster,
  untilServicesWork,
} from "../proxy/install.ts";
import { runOn } from "../proxy/processes.ts";
import { Probe } from "../recovery/probe.ts";
import type { Measurement } from "../recovery/recovery.ts";

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

/** Limit for a step that documents say to repeat. */
const repeatMs = 240_000;

/** Longest duration of all moves. */
const loadMs = 3_600_000;

/**
 * Moves every node of a cluster from kube-proxy's ipvs mode to kpng-ipvs and back, with the commands of
 * docs/install.md, while new connections are opened from every node. kube-proxy runs as a DaemonSet, and the cluster is
 * prepared for kpng.
 *
 * Errors: a step that does not succeed, connections that failed, or what a proxy has left behind.
 */
export async function* moveAll(cluster: Cluster): AsyncGenerator<Measurement> {
  const { kubectl, nodes } = cluster;
  const document = new MoveDocument(cluster);
  const probe = await Probe.create(cluster, "probe");
  await kubectl.run(["apply", "--kustomize", join(manifests, "watcher")]);
  await kubectl.runInShell("kubectl --namespace kube-system rollout status deployment/kpng-watcher --timeout 2m");
  await kubectl.runInShell(document.patchOfKubeProxy);
  await kubectl.runInShell("kubectl --namespace kube-system rollout status daemonset/kube-proxy --timeout 2m");
  await kubectl.run(["apply", "--kustomize", document.kustomization]);
  const end = new AbortController();
  const load = probe.load(loadMs, end.signal);
  try {
    for (const { name } of nodes) {
      const startedMs = performance.now();
      for (const command of document.move(name)) await runUntilNotEarly(cluster, command);
      yield { step: `${name} moved to kpng-ipvs`, measured: seconds(performance.now() - startedMs) };
    }
    await expectObjects(cluster, {
      present: ["kube-ipvs0", "KPNGIPVS-"],
      absent: ["KUBE-CLUSTER-IP", "KUBE-SERVICES", "KUBE-IPVS"],
    });
    await Probe.create(cluster, "moved");
    for (const { name } of nodes) {
      const startedMs = performance.now();
      for (const command of document.moveBack(name)) await runUntilNotEarly(cluster, command);
      yield { step: `${name} moved back to kube-proxy`, measured: seconds(performance.now() - startedMs) };
    }
    await expectObjects(cluster, { present: ["kube-ipvs0", "KUBE-SERVICES"], absent: ["KPNGIPVS-"] });
    await Probe.create(cluster, "back");
  } finally {
    end.abort();
  }
  const { asked, failed, failedAlsoDirectly } = await load;
  if (failed > 0) throw new Error(`${failed} of ${asked} connections failed`);
  const starved = `${failedAlsoDirectly} without an answer from the pod's own address either`;
  yield { step: "new connections in the meantime", measured: `${asked}, none failed; ${starved}` };
}

/** The commands of docs/install.md. */
class MoveDocument {
  readonly patchOfKubeProxy: string;
  /** Folder with the kustomization that the document describes. */
  readonly kustomization: string;
  readonly #move: readonly string[];

  /** Errors: the document has other commands than these. */
  constructor({ folder }: Cluster) {
    const blocks = readBlocks().filter(({ path }) => path === "docs/install.md");
    const blockWith = (text: string) =>
      blocks.map(({ commands }) => commands).find((commands) => commands.some((command) => command.includes(text)));
    const [patch, move] = [blockWith('"key":"kpng.example/proxy"'), blockWith("--cleanup-kube-proxy")];
    const yaml = /```yaml\n( *patches:\n[\s\S]*?name: kpng-ipvs\n[\s\S]*?)```/.exec(
      readFileSync("docs/install.md", "utf8"),
    );
    if (patch === undefined || move === undefined || yaml?.[1] === undefined) {
      throw new Error("docs/install.md: no commands for a move from kube-proxy's ipvs mode");
    }
    this.patchOfKubeProxy = patch.join("\n");
    // The image of this repository has no registry.
    this.#move = move.map((command) => command.replace("registry.example/kpng/", "docker.io/library/"));
    this.kustomization = join(folder, "my-cluster");
    mkdirSync(this.kustomization);
    const overlay = relative(this.kustomization, join(manifests, "overlays/replace-kube-proxy/ipvs"));
    const patches = yaml[1].replace(/^ {3}/gm, "");
    writeFileSync(join(this.kustomization, "kustomization.yaml"), `resources: [${overlay}]\n${patches}`);
  }

  /** Commands that move a node to kpng-ipvs. */
  move(node: string): readonly string[] {
    return this.#move.filter((command) => command !== "node=n1").map((command) => `node=${node}; ${command}`);
  }

  /** Commands that move a node back: the document has them in words. */
  moveBack(node: string): readonly string[] {
    const debug = this.#move.at(-1) ?? "";
    const run = (option: string): string => `node=${node}; ${debug.replace("--cleanup-kube-proxy", option)}`;
    return [
      `kubectl label --overwrite node ${node} kpng.example/proxy=none`,
      run("--hand-over-to-kube-proxy"),
      `kubectl label node ${node} kpng.example/proxy-`,
      run("--cleanup"),
    ];
  }
}

/**
 * Runs a command of the document, again while it comes too early. `kubectl debug` does not report how its command has
 * ended, and prints nothing if that was too soon, so its pod is asked.
 */
async function runUntilNotEarly({ kubectl }: Cluster, command: string): Promise<void> {
  if (!command.includes("kubectl debug")) return void (await kubectl.runInShell(command));
  const columns = '--output=jsonpath={range .items[*]}{.metadata.name} {.status.phase}{"\\n"}{end}';
  const endOfDebugger = async (): Promise<{ readonly name: string; readonly phase: string } | undefined> => {
    const pods = await kubectl.run(["get", "pods", columns]);
    const [, name = "", phase = ""] = /^(node-debugger\S*) (Succeeded|Failed)$/m.exec(pods) ?? [];
    return name === "" ? undefined : { name, phase };
  };
  const endMs = performance.now() + repeatMs;
  for (;;) {
    await kubectl.runInShell(command);
    const { name, phase } = await until(`${command} has ended`, endOfDebugger, repeatMs);
    const log = await kubectl.run(["logs", name]);
    await kubectl.run(["delete", "pod", name]);
    if (phase === "Succeeded") return;
    if (!log.includes("MOVE_TOO_EARLY") || performance.now() > endMs) throw new Error(`${command}: ${log}`);
  }
}

/** Checks what the proxies have on every node: interfaces, ipsets and chains. Errors: with what is wrong. */
async function expectObjects(
  { nodes }: Cluster,
  { present, absent }: { readonly present: readonly string[]; readonly absent: readonly string[] },
): Promise<void> {
  const rules = ["iptables", "ip6tables"].flatMap((name) => [`${name}-nft-save`, `${name}-legacy-save`]);
  const all = ["ip -oneline link", "ipset list -name", ...rules].join("; ");
  for (const node of nodes) {
    const text = await runOn(node, ["sh", "-c", all]);
    const missing = present.filter((name) => !text.includes(name));
    if (missing.length > 0) throw new Error(`${node.name} has no ${missing}`);
    const left = text.split("\n").filter((line) => absent.some((name) => line.includes(name)));
    if (left.length > 0) throw new Error(`${node.name} still has: ${left.join("; ")}`);
  }
}

function seconds(durationMs: number): string {
  return `${(durationMs / 1000).toFixed(1)} s`;
}
