import { until } from "../../cluster/until.ts";
import { type Cluster, startControlPlane } from "../cluster/cluster.ts";
import type { Backend } from "../proxy/images.ts";
import { patternOf, runOn, signalOn } from "../proxy/processes.ts";
import { Probe } from "./probe.ts";
import { useStaticPods } from "./static-pods.ts";

/** A step and what was measured. */
export interface Measurement {
  readonly step: string;
  readonly measured: string;
}

/**
 * Takes away what an installed kpng depends on, one thing after the other, and checks that Services work all the time,
 * or again without help. For `withoutWatchersMs`, new connections are opened while there is no watcher.
 *
 * Errors: the first step that does not succeed within three minutes, or connections that failed where none may.
 */
export async function* recover(
  cluster: Cluster,
  backend: Backend,
  withoutWatchersMs: number,
): AsyncGenerator<Measurement> {
  const { kubectl, controlPlane, nodes } = cluster;
  const probe = await Probe.create(cluster, "probe");
  const [first] = nodes;
  if (first === undefined) throw new Error("the cluster has no nodes");
  const kubeSystem = "--namespace=kube-system";

  await kubectl.run(["scale", "deployment/kpng-watcher", kubeSystem, "--replicas=0"]);
  const watchers = ["get", "pods", kubeSystem, "--selector=app.kubernetes.io/component=watcher", "--output=name"];
  await until("all watchers are gone", async () => (await kubectl.run(watchers)) === "", 180_000);
  const { asked, failed, failedAlsoDirectly } = await probe.load(withoutWatchersMs);
  const starved = `${failedAlsoDirectly} without an answer from the pod's own address either`;
  if (failed > 0) throw new Error(`without watchers, ${failed} of ${asked} connections failed; ${starved}`);
  if (failedAlsoDirectly > asked / 10) throw new Error(`the machine is too busy for a result: of ${asked}, ${starved}`);
  const measured = `${asked} connections in ${withoutWatchersMs / 1000} s, none failed; ${starved}`;
  yield { step: "no watcher", measured };

  await controlPlane.apiServer.stop();
  // A running backend would repair its rules.
  await signalOn(first, patternOf("backend", backend), "STOP");
  await loseRules(first, backend);
  await expectNoAnswer(probe, first.name);
  await signalOn(first, patternOf("backend", backend), "KILL");
  yield {
    step: "no watcher, no API server, rules lost, backend restarted by kubelet",
    measured: `Services worked ${seconds(await probe.untilAnswered(first.name))} later, from the saved view`,
  };

  await first.kill();
  await first.start();
  await startControlPlane(controlPlane, kubectl);
  yield {
    step: "node rebooted while the API server was down, no watcher",
    measured: `Services worked ${seconds(await probe.untilAnswered(first.name))} after the API server was back`,
  };

  await kubectl.run(["scale", "deployment/kpng-watcher", kubeSystem, "--replicas=2"]);
  const startedMs = performance.now();
  await Probe.create(cluster, "after");
  yield {
    step: "watchers back",
    measured: `a new Service worked on every node ${seconds(performance.now() - startedMs)} later`,
  };

  if (backend !== "nft") return;
  await useStaticPods(cluster, backend);
  const last = await Probe.create(cluster, "last");
  await controlPlane.apiServer.stop();
  await first.kill();
  await first.start();
  yield {
    step: "backends as static pods, node rebooted while the API server was down",
    measured: `Services worked ${seconds(await last.untilAnswered(first.name))} later, without the API server`,
  };
  await startControlPlane(controlPlane, kubectl);
}

type Node = Cluster["nodes"][number];

/** Commands that remove all rules of a backend. */
const ruleLosses: Readonly<Record<Backend, string>> = {
  iptables: "iptables -t nat -F && iptables -t nat -X",
  nft: "nft flush ruleset",
  ipvs: "ipvsadm -C",
  // Its rules are the process itself, which is stopped now.
  userspace: "true",
  ebpf: "rm -r /sys/fs/bpf/*",
};

/** Removes all rules, as another program might, so that only the saved view can bring them back. */
async function loseRules(node: Node, backend: Backend): Promise<void> {
  await runOn(node, ["sh", "-c", ruleLosses[backend]]);
}

async function expectNoAnswer(probe: Probe, nodeName: string): Promise<void> {
  const answer = await probe.ask(nodeName).catch(() => undefined);
  if (answer !== undefined) throw new Error(`the Service answers ${nodeName} although its rules were removed`);
}

function seconds(durationMs: number): string {
  return `${(durationMs / 1000).toFixed(1)} s`;
}
