import { execFile } from "node:child_process";
import { copyFileSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { parse } from "yaml";
import { runKpng } from "../docs/run-kpng.ts";
import { kpngMain, usePrograms } from "../process/programs.ts";
import type { ApiClient, KubeObject } from "./api-client.ts";
import type { Cluster } from "./cluster.ts";
import { describeCluster } from "./describe-cluster.ts";
import { startKubelet } from "./kubelet.ts";
import { createService, createSlice } from "./objects.ts";
import { freePorts } from "./ports.ts";
import { applyRbac } from "./rbac.ts";

vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000, expect: { poll: { timeout: 60_000 } } });

const run = promisify(execFile);
const namespace = "/api/v1/namespaces/kube-system";
const roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system";

/** The Role that docs/inspect.md gives a user. */
const role = parse(
  /```yaml\n(kind: Role\n[\s\S]*?)```/.exec(readFileSync(resolve("docs/inspect.md"), "utf8"))?.[1] ?? "",
) as KubeObject & { readonly rules: readonly { readonly resources: readonly string[] }[] };

/** Writes a kubeconfig with the token of a new account that has these rules in kube-system, and returns its path. */
async function userWith(cluster: Cluster, name: string, rules: readonly unknown[]): Promise<string> {
  const { api, apiServer, folder } = cluster;
  await api.create(`${namespace}/serviceaccounts`, { apiVersion: "v1", kind: "ServiceAccount", metadata: { name } });
  const rbac = { apiVersion: "rbac.authorization.k8s.io/v1", metadata: { name } };
  await api.create(`${roles}/roles`, { ...rbac, kind: "Role", rules });
  const roleRef = { apiGroup: "rbac.authorization.k8s.io", kind: "Role", name };
  const subjects = [{ kind: "ServiceAccount", name, namespace: "kube-system" }];
  await api.create(`${roles}/rolebindings`, { ...rbac, kind: "RoleBinding", roleRef, subjects });
  const token = await api.requestToken(name);
  const path = join(folder, `${name}.kubeconfig`);
  const config = {
    apiVersion: "v1",
    kind: "Config",
    clusters: [
      { name: "test", cluster: { server: apiServer.url, "certificate-authority": apiServer.caFile } },
      { name: "gone", cluster: { server: "https://127.0.0.1:1" } },
    ],
    users: [
      { name, user: { token } },
      { name: "plugin", user: { exec: { apiVersion: "client.authentication.k8s.io/v1", command: "no-such-plugin" } } },
    ],
    contexts: [
      { name: "test", context: { cluster: "test", user: name } },
      { name: "gone", context: { cluster: "gone", user: name } },
      { name: "plugin", context: { cluster: "test", user: "plugin" } },
    ],
    "current-context": "test",
  };
  writeFileSync(path, JSON.stringify(config));
  return path;
}

/** Creates a pod of kpng as its kubelet would report it. */
async function createKpngPod(
  api: ApiClient,
  { name, node, component, port = 1, isReady = true }: KpngPod,
): Promise<void> {
  const labels = { "app.kubernetes.io/name": "kpng", "app.kubernetes.io/component": component };
  const containers = [{ name: "backend", image: "none", ports: [{ name: "grpc", containerPort: port }] }];
  await api.create(`${namespace}/pods`, {
    ...{ apiVersion: "v1", kind: "Pod", metadata: { name, labels }, spec: { nodeName: node, containers } },
  });
  const conditions = [{ type: "Ready", status: isReady ? "True" : "False" }];
  await api.patch(`${namespace}/pods/${name}/status`, { status: { phase: "Running", conditions } });
}

interface KpngPod {
  readonly name: string;
  readonly node: string;
  readonly component: string;
  readonly port?: number;
  readonly isReady?: boolean;
}

await describeCluster("questions through the API server", { hasControllers: false }, (cluster) => {
  const { at, start } = usePrograms();
  let certificates = "";

  beforeAll(async () => {
    const { api, folder } = cluster();
    certificates = join(folder, "certificates");
    // A name by which nothing here reaches a watcher.
    const words = "certificates serving --name watcher.example --days 1 --folder".split(" ");
    const made = await runKpng([...words, certificates]);
    expect(made.code).toBe(0);
    await applyRbac(api);
    const ca = readFileSync(join(certificates, "ca.crt"), "utf8");
    const data = { "ca.crt": ca };
    await api.create(`${namespace}/configmaps`, {
      ...{ apiVersion: "v1", kind: "ConfigMap", metadata: { name: "kpng-ca" }, data },
    });
    await createService(api, { name: "web" });
    await createSlice(api, { name: "web-1", service: "web", addresses: ["10.1.0.1"] });
  });

  /** Starts two watchers and a backend with their pods, nodes and kubelet, all removed after the test. */
  async function startKpng(watcherOptions: readonly string[] = []): Promise<void> {
    const { api, kubeconfig } = cluster();
    const [key, cert] = ["key", "crt"].map((suffix) => join(certificates, `serving.${suffix}`)) as [string, string];
    const inspectSocket = at("inspect.sock");
    const inPod = ["env", `KPNG_INSPECT_SOCKET=${inspectSocket}`, process.execPath, resolve(kpngMain)];
    const kubelet = await startKubelet({ key: readFileSync(key), cert: readFileSync(cert) }, (command) => [
      ...inPod,
      ...command.slice(1),
    ]);
    const ports = await freePorts(2);
    const nodes = ["n1", "n2"];
    for (const name of nodes) {
      await api.create("/api/v1/nodes", { apiVersion: "v1", kind: "Node", metadata: { name } });
      await api.patch(`/api/v1/nodes/${name}/status`, {
        status: {
          addresses: [{ type: "InternalIP", address: "127.0.0.1" }],
          daemonEndpoints: { kubeletEndpoint: { Port: kubelet.port } },
        },
      });
    }
    const pods: readonly KpngPod[] = [
      { name: "kpng-watcher-a", node: "n1", component: "watcher", port: ports[0] ?? 0 },
      { name: "kpng-watcher-b", node: "n2", component: "watcher", port: ports[1] ?? 0 },
      { name: "kpng-watcher-c", node: "n2", component: "watcher", isReady: false },
      { name: "kpng-json-n1", node: "n1", component: "json" },
    ];
    for (const pod of pods) await createKpngPod(api, pod);
    onTestFinished(async () => {
      kubelet.close();
      for (const { name } of pods) await api.delete(`${namespace}/pods/${name}`);
      for (const name of nodes) await api.delete(`/api/v1/nodes/${name}`);
    });
    for (const [index, port] of ports.entries()) {
      const tls = ["--listen-tls-key", key, "--listen-tls-crt", cert, "--token-audience", "kpng"];
      const listen = ["--listen", `tcp://127.0.0.1:${port}`, "--listen", `unix://${at(`${index}.sock`)}`];
      const rights = ["--trust-loopback=false", ...watcherOptions];
      const source = ["kube", "--kubeconfig", kubeconfig("kpng"), "to-api"];
      const watcher = start(kpngMain, [...source, ...listen, ...tls, ...rights]);
      await watcher.said('"msg":"listening"');
    }
    const backend = ["--node-name", "n1", "--log-level", "off", "--inspect-socket", inspectSocket];
    start("services/backend-json/src/main.ts", ["--api", `unix://${at("1.sock")}`, ...backend]);
  }

  const trusted = ["--inspection-accounts", "kube-system/kpng-inspection"];
  let users = 0;
  const user = (rules: readonly unknown[] = role.rules): Promise<string> =>
    userWith(cluster(), `user-${++users}`, rules);

  test("with the Role of docs/inspect.md, every question reaches all ready watchers, and a backend by its pod", async () => {
    await startKpng(trusted);
    const kubeconfig = await user();
    const ask = (...words: string[]) => runKpng([...words, "--kubeconfig", kubeconfig]);
    await expect.poll(async () => (await ask("status")).out).toMatch(/^nodes +1 current, 1 absent$/m);
    const status = await ask("status");
    expect(status.out).toMatch(/^replica +kpng-watcher-a on n1\n[\s\S]*^replica +kpng-watcher-b on n2$/m);
    expect(status.said).toBe("warning: kpng-watcher-c is not ready, and not asked\n");

    expect((await ask("get", "nodes", "--state", "absent", "-o", "name")).out).toBe("node/n2\n");
    expect((await ask("get", "services", "web", "-o", "name")).out).toBe("service/default/web\n");
    expect((await ask("get", "view", "n1", "--service", "default/web")).out).toContain("10.1.0.1:8080");
    expect((await ask("describe", "node", "n1")).out).toMatch(/\n +1 +n1 +node +kpng-json/);
    expect((await ask("explain", "--node", "n1", "default/web")).out).toContain(": FORWARD");
    expect((await ask("top")).out).toContain("cluster");
    expect((await ask("analyze")).out).toContain("no backend of this node");

    await createService(cluster().api, { name: "late" });
    onTestFinished(() => cluster().api.delete("/api/v1/namespaces/default/services/late"));
    await expect
      .poll(async () => (await ask("trace", "default/late")).out)
      .toMatch(/from kube of kpng-watcher-[ab] on n[12]/);
    const trace = (await ask("trace", "default/late")).out;
    expect(trace).toContain("from kube of kpng-watcher-a on n1");
    expect(trace).toContain("from kube of kpng-watcher-b on n2");
    expect((await ask("status", "--pod", "kpng-watcher-b")).out).not.toContain("replica");

    expect((await ask("get", "backend", "--node", "n1")).out).toMatch(/kpng-json +n1 +yes/);
    expect((await ask("get", "backend")).said).toContain("--node is required");
    expect((await ask("get", "backend", "--node", "n2")).said).toContain("no backend on n2");
  });

  test("kubectl's plug-in asks the current cluster, as kubectl does", async () => {
    await startKpng(trusted);
    const [home, plugin] = [at("home"), at("kubectl-kpng")];
    mkdirSync(join(home, ".kube"), { recursive: true });
    copyFileSync(await user(), join(home, ".kube/config"));
    symlinkSync(resolve(kpngMain), plugin);
    const env = { ...process.env, HOME: home, KUBECONFIG: undefined };
    const ask = async (...words: string[]) => (await run(process.execPath, [plugin, ...words], { env })).stdout;
    expect(await ask("get", "services", "web", "-o", "name")).toBe("service/default/web\n");
    expect(await ask("status", "--api", `unix://${at("0.sock")}`)).not.toContain("replica");
  });

  test("an address wins over a kubeconfig, and without either the address of this machine is asked", async () => {
    await startKpng();
    const kubeconfig = await user([]);
    vi.stubEnv("KUBECONFIG", kubeconfig);
    onTestFinished(() => void vi.unstubAllEnvs());
    expect((await runKpng(["status", "--api", `unix://${at("0.sock")}`])).out).toContain("instance");
    expect((await runKpng(["status"])).said).toContain("not allowed to list pods");
    vi.stubEnv("KUBECONFIG", "");
    expect((await runKpng(["status"])).said).not.toContain("pods");
  });

  describe("errors", () => {
    test.each<readonly [string, string, RegExp]>([
      [
        "pods",
        "status",
        /not allowed to list pods in namespace kube-system \(403\).*user-\d+.*\nHint: docs\/inspect\.md/,
      ],
      ["configmaps", "status", /not allowed to get configmaps\/kpng-ca .*\(403\)/],
      ["serviceaccounts/token", "status", /not allowed to create serviceaccounts\/token of kpng-inspection .*\(403\)/],
      ["pods/portforward", "status", /kpng-watcher-b on n2: .*not allowed to create pods\/portforward .*\(403\)/],
      ["pods/exec", "get backend --node n1", /kpng-json-n1 on n1: .*not allowed to create pods\/exec .*\(403\)/],
    ])("without the right to %s, kpng says so", async (resource, command, text) => {
      await startKpng(trusted);
      const kubeconfig = await user(role.rules.filter(({ resources }) => !resources.includes(resource)));
      const { code, said } = await runKpng([...command.split(" "), "--kubeconfig", kubeconfig]);
      expect([code, said]).toEqual([1, expect.stringMatching(text)]);
    });

    test("a watcher that does not know the account says so", async () => {
      await startKpng();
      const { code, said } = await runKpng(["status", "--kubeconfig", await user()]);
      expect([code, said]).toEqual([
        1,
        expect.stringMatching(/kpng-inspection has no right at this watcher[\s\S]*Hint: .*--inspection-accounts/),
      ]);
    });

    test("a wrong kubeconfig, context, server or namespace fails at once, and says what is wrong", async () => {
      const kubeconfig = await user();
      const said = async (...args: string[]) => (await runKpng(["status", ...args])).said;
      expect(await said("--kubeconfig", "/nowhere")).toMatch(
        /cannot read the Kubernetes configuration: ENOENT.*\/nowhere/,
      );
      expect(await said("--kubeconfig", kubeconfig, "--context", "prod")).toContain(
        'no context "prod" in the kubeconfig: it has test, gone, plugin',
      );
      expect(await said("--kubeconfig", kubeconfig, "--context", "plugin")).toMatch(
        /the kubeconfig gives no credentials: .*no-such-plugin/,
      );
      expect(await said("--kubeconfig", kubeconfig, "--context", "gone")).toMatch(
        /cannot reach the API server https:\/\/127\.0\.0\.1:1: .*ECONNREFUSED/,
      );
      expect(await said("--kubeconfig", kubeconfig)).toMatch(
        /no watcher: namespace kube-system has no such pod of kpng\nHint/,
      );
      await createKpngPod(cluster().api, { name: "kpng-watcher-d", node: "", component: "watcher", isReady: false });
      onTestFinished(() => cluster().api.delete(`${namespace}/pods/kpng-watcher-d`));
      expect(await said("--kubeconfig", kubeconfig)).toContain(
        "no watcher is ready: kpng-watcher-d is not ready\nHint: kubectl",
      );
    });
  });
});
