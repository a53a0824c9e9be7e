import { execFileSync, spawnSync } from "node:child_process";
import { cpSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { parse } from "yaml";
import type { KubeObject } from "../cluster/api-client.ts";
import { describeCluster } from "../cluster/describe-cluster.ts";
import { createService, createSlice } from "../cluster/objects.ts";
import { until } from "../cluster/until.ts";
import { whyNoBpf } from "../kernel/describe-bpf.ts";
import { findKubectl } from "./find-kubectl.ts";
import { type GuideShell, openGuideShell } from "./guide-shell.ts";
import { commandsOfGuide, staticPodsGuide } from "./install-guide.ts";
import { buildKustomization } from "./kustomizations.ts";
import { Machine } from "./machine.ts";
import { createPodOf } from "./pods.ts";
import { type RunningContainer, runContainer } from "./run-container.ts";
import { removeCgroup } from "./volumes.ts";

const kubectl = (await findKubectl()) ?? "";

const whyNot = kubectl === "" ? "no kubectl" : process.getuid?.() === 0 ? undefined : "root is required";

/** Time limit of a test that starts programs, on a busy machine. */
const timeout = 240_000;

await describeCluster("the containers of the manifests", { whyNot, hasControllers: false }, (cluster) => {
  let machine: Machine;
  let shell: GuideShell;
  const running: RunningContainer[] = [];
  beforeAll(async () => {
    const { api, folder, apiServer } = cluster();
    shell = await openGuideShell(cluster(), kubectl);
    shell.install();
    shell.run("kubectl apply -f deploy/kubernetes/overlays/single-process/rbac.yaml");
    await createService(api, { name: "web", spec: { clusterIP: "10.96.7.7", selector: {}, ports: [{ port: 80 }] } });
    await createSlice(api, { name: "web-1", service: "web", addresses: ["10.244.1.5"] });
    machine = await Machine.open(folder, Number(new URL(apiServer.url).port));
  }, timeout);
  afterAll(async () => {
    await Promise.all(running.map((container) => container.stop()));
    await machine?.[Symbol.asyncDispose]();
    removeCgroup();
  }, timeout);

  /** Starts the container of a Deployment or DaemonSet on a node, and waits until both of its probes succeed. */
  async function start(workload: KubeObject, node: string): Promise<RunningContainer> {
    const { api, folder, apiServer } = cluster();
    const pod = await createPodOf(api, workload, node);
    const container = await runContainer(machine, pod, {
      api,
      apiCaFile: apiServer.caFile,
      folder: join(folder, pod.name),
    });
    running.push(container);
    await container.untilProbe("liveness");
    await container.untilProbe("readiness");
    return container;
  }

  const apps = "/apis/apps/v1/namespaces/kube-system";

  function daemonSetIn(folder: string): KubeObject {
    const found = buildKustomization(kubectl, `deploy/kubernetes/${folder}`).find(({ kind }) => kind === "DaemonSet");
    if (found === undefined) throw new Error(`${folder} has no DaemonSet`);
    return found;
  }

  let watcher: RunningContainer;
  let nft: RunningContainer;

  test("a watcher and kpng-nft become ready, and the node has rules", { timeout }, async () => {
    const { api } = cluster();
    watcher = await start(await api.get(`${apps}/deployments/kpng-watcher`), "cp-1");
    nft = await start(await api.get(`${apps}/daemonsets/kpng-nft`), "n1");
    const rules = execFileSync("ip", ["netns", "exec", machine.name, "nft", "list", "ruleset"], { encoding: "utf8" });
    expect(rules).toContain("10.96.7.7");
    expect(rules).toContain("10.244.1.5");
  });

  test("the commands of docs/install.md verify them", { timeout }, async () => {
    const blocks = commandsOfGuide("6. Verify");
    const [, findWatchers = ""] = /\$\((kubectl .*?)\)/.exec(blocks.join("\n")) ?? [];
    expect(shell.run(findWatchers)).toBe("pod/kpng-watcher-cp-1\n");
    const commands = blocks.flatMap((block) => block.match(/-- kpng .*$/gm) ?? []);
    const [getNodes = [], getBackend = []] = commands.map((command) => command.split(" ").slice(2));
    await until("node n1 is current", () => /^n1 .*current/m.test(watcher.exec("kpng", getNodes)), 60_000);
    expect(nft.exec("kpng", getBackend)).toContain("n1");
  });

  test("a relay serves a node that proves itself by its token", { timeout }, async () => {
    for (const command of commandsOfGuide("Replicas and relays", "docs/guides/sizing.md")) shell.run(command);
    const found = buildKustomization(kubectl, "deploy/kubernetes/relay").find(({ kind }) => kind === "Deployment");
    // The watcher in the same network namespace has the ports 12090 to 12092.
    await start(JSON.parse(JSON.stringify(found).replaceAll(/1209([012])/g, "1219$1")) as KubeObject, "n1");
    const config = "/api/v1/namespaces/kube-system/configmaps/kpng";
    const { data } = await cluster().api.get(config);
    await cluster().api.patch(config, { data: { watchers: "https://10.0.0.21:12190" } });
    const json = await start(daemonSetIn("backends/json"), "cp-2");
    expect(json.output()).toContain("10.96.7.7");
    await cluster().api.patch(config, { data });
    await running.splice(running.indexOf(json), 1)[0]?.stop();
  });

  test("the other backends become ready beside it", { timeout }, async () => {
    const folders = ["overlays/beside-kube-proxy", "backends/callout", "backends/json", "backends/userspace"];
    await Promise.all(folders.map((folder) => start(daemonSetIn(folder), "n1")));
  });

  test("kpng-ipvs becomes ready, or says that the kernel has no IPVS", { timeout }, async ({ skip }) => {
    const { error, status } = spawnSync("ipvsadm", ["-S", "-n"]);
    if (error !== undefined) skip("ipvsadm is not installed");
    const ready = start(daemonSetIn("backends/ipvs"), "n1");
    if (status === 0) await ready;
    else await expect(ready).rejects.toThrow(/IPVS_UNAVAILABLE.*IPVS \(module ip_vs\)/);
  });

  test("kpng-ebpf becomes ready, or says what the node lacks", { timeout }, async () => {
    const ready = start(daemonSetIn("backends/ebpf"), "n1");
    if (whyNoBpf !== undefined) return expect(ready).rejects.toThrow(/BPF_UNSUPPORTED|PROGRAM_REJECTED/);
    const ebpf = await ready;
    expect(ebpf.exec("kpng", ["get", "rules", "v4", "--api", "unix:///run/kpng/inspect.sock"])).toMatch(
      /TCP 10\.96\.7\.7:80 .*10\.244\.1\.5/,
    );
  });

  test("a static pod proves its node by a certificate, as its guide says", { timeout }, async () => {
    await Promise.all(running.splice(0).map((container) => container.stop()));
    const { api, folder } = cluster();
    const { kustomization, pod: manifest, commands } = staticPodsGuide();
    writeFileSync(join(shell.clone, "my-cluster", "kustomization.yaml"), kustomization);
    shell.run("kubectl apply --kustomize my-cluster");
    await start(await api.get(`${apps}/deployments/kpng-watcher`), "cp-2");

    for (const command of commands) shell.run(command);
    writeFileSync(join(shell.clone, "kpng-nft.yaml"), manifest);
    shell.run("kubectl apply --dry-run=server --validate=strict --filename kpng-nft.yaml");
    const { data } = await api.get("/api/v1/namespaces/kube-system/configmaps/kpng");
    const { watchers = "" } = data as Readonly<Record<string, string>>;
    const template = parse(manifest.replace("https://10.0.0.11:12090", watchers));
    const workload = { apiVersion: "apps/v1", kind: "DaemonSet", metadata: { name: "static-nft" }, spec: { template } };
    const files = join(folder, "static-nft-n1", "host/etc/kpng");
    mkdirSync(files, { recursive: true });
    for (const [from, to] of [
      ["ca.crt", "ca.crt"],
      ["n1.crt", "node.crt"],
      ["n1.key", "node.key"],
    ] as const)
      cpSync(join(shell.clone, "kpng-certificates", from), join(files, to));
    const pod = await start(workload, "n1");
    const getBackend = ["get", "backend", "--api", "unix:///run/kpng/inspect.sock"];
    expect(pod.exec("kpng", getBackend)).toContain("n1");
  });

  test("a single process needs no watcher", { timeout }, async () => {
    await Promise.all(running.splice(0).map((container) => container.stop()));
    await cluster().api.delete("/api/v1/namespaces/kube-system/pods/kpng-iptables-n1");
    await start(daemonSetIn("overlays/single-process"), "n1");
  });
});
