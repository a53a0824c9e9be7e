import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { parse, parseAllDocuments } from "yaml";
import packageJson from "../../package.json" with { type: "json" };
import type { KubeObject } from "../cluster/api-client.ts";
import { findBinaries } from "../cluster/binaries.ts";
import { describeCluster } from "../cluster/describe-cluster.ts";
import { findKubectl } from "./find-kubectl.ts";
import { type GuideShell, openGuideShell } from "./guide-shell.ts";
import { commandsOfGuide, yamlOfGuide } from "./install-guide.ts";
import { buildKustomization, makeKustomization, podSpecOf } from "./kustomizations.ts";

const kubectl = (await findKubectl()) ?? "";
const found = await findBinaries(["helm"]);
const helm = found.kind === "found" ? found.paths.helm : "";
const whyNot = found.kind === "missing" ? found.reason : kubectl === "" ? "no kubectl" : undefined;

const archive = `kpng-${packageJson.version}.tgz`;
const serviceProxies = ["iptables", "nft", "ipvs", "ebpf", "userspace"];
const backends = [...serviceProxies, "callout", "json"];
const guideValues = yamlOfGuide().find((text) => text.startsWith("apiServer:")) ?? "";

/** Values of a chart; those that it requires are added. */
type Values = Readonly<Record<string, unknown>>;
const required: Values = {
  apiServer: "https://10.0.0.10:6443",
  clusterCidrs: ["10.244.0.0/16", "fd00:10:244::/56"],
  watchers: ["https://10.0.0.11:12090", "https://10.0.0.12:12090"],
};
const every = Object.fromEntries(backends.map((name) => [name, {}]));

type Case = readonly [values: Values, kustomization: string];

/** Values of the chart, and the kustomization that gives the same objects; DEPLOY stands for deploy/kubernetes. */
const cases: readonly Case[] = [
  ...backends.map(
    (name): Case => [{ backends: { [name]: {} } }, `resources: [DEPLOY/watcher, DEPLOY/backends/${name}]`],
  ),
  ...serviceProxies.map(
    (name): Case => [
      { replaceKubeProxy: true, backends: { [name]: {} } },
      `resources: [DEPLOY/overlays/replace-kube-proxy/${name}]`,
    ],
  ),
  [
    { backends: { iptables: { env: { KPNG_SERVICE_PROXY_NAME: "kpng" } } } },
    "resources: [DEPLOY/overlays/beside-kube-proxy]",
  ],
  [
    { backends: every, monitoring: { podMonitors: true }, watcher: { clientCertificates: true } },
    `resources: [DEPLOY/watcher, ${backends.map((name) => `DEPLOY/backends/${name}`).join(", ")}]
components: [DEPLOY/components/monitoring, DEPLOY/components/client-certificates]`,
  ],
  [parse(guideValues) as Values, (yamlOfGuide()[0] ?? "").replace("../deploy/kubernetes", "DEPLOY")],
];

/** What the message must say about wrong values. */
const refused: readonly (readonly [message: string, values: Values])[] = [
  ["missing property 'apiServer'", { apiServer: undefined }],
  ["at '/apiServer': '10.0.0.10:6443' does not match pattern '^https://'", { apiServer: "10.0.0.10:6443" }],
  ["at '/clusterCidrs': got string, want array", { clusterCidrs: "10.244.0.0/16" }],
  ["at '': additional properties 'backend' not allowed", { backend: { nft: {} } }],
  ["at '/backends': additional properties 'nftables' not allowed", { backends: { nftables: {} } }],
  ["at '/backends/nft': got null, want object", { backends: { nft: null } }],
  [
    "at '/backends/nft': additional properties 'nodeSelectors' not allowed",
    { backends: { nft: { nodeSelectors: {} } } },
  ],
  ["at '/backends/nft/env/KPNG_ID': got number, want string", { backends: { nft: { env: { KPNG_ID: 1 } } } }],
  ["at '/watcher/env': additional properties 'kpng' not allowed", { watcher: { env: { kpng: "" } } }],
  ["at '/watcher/replicas': got string, want integer", { watcher: { replicas: "2" } }],
  ["at '/tag': got number, want string", { tag: 0.1 }],
];

await describeCluster("deploy/helm/kpng", { whyNot, hasControllers: false }, (cluster) => {
  const folder = temporaryFolder(afterAll);
  let shell: GuideShell;

  beforeAll(async () => {
    shell = await openGuideShell(cluster(), helm, kubectl);
    run("package", "deploy/helm/kpng", "--destination", folder);
  });

  function run(...args: readonly string[]): string {
    const { status, stdout, stderr } = spawnSync(helm, args, { encoding: "utf8", maxBuffer: 16 << 20 });
    if (status !== 0) throw new Error(stdout + stderr);
    return stdout;
  }

  /** Renders the packaged chart, which needs no file outside of it. Errors: the output of helm. */
  function template(values: Values): string {
    const file = join(folder, "values.json");
    writeFileSync(file, JSON.stringify({ ...required, ...values }));
    return run("template", "kpng", join(folder, archive), "--values", file, "--kube-version", "1.36.0");
  }

  test("the chart has the version of the images, and passes lint", () => {
    const { version, appVersion } = parse(readFileSync("deploy/helm/kpng/Chart.yaml", "utf8")) as Values;
    expect({ version, appVersion }).toEqual({ version: packageJson.version, appVersion: packageJson.version });
    writeFileSync(join(folder, "every.json"), JSON.stringify({ ...required, backends: every }));
    const said = run("lint", "--strict", "deploy/helm/kpng", "--values", join(folder, "every.json"));
    expect(said).toContain("1 chart(s) linted, 0 chart(s) failed");
    expect(said).not.toMatch(/WARNING|ERROR/);
  });

  test.each(cases)("%j gives the objects of the manifests", (values, kustomization) => {
    const rendered = objectsOf(template(values)).filter((object) => !isConfig(object));
    const built = buildKustomization(kubectl, makeKustomization(kustomization));
    expect(comparable(rendered)).toEqual(comparable(built));
  });

  test("the ConfigMap has the values of the cluster, and pods that use one restart when it changes", () => {
    const data = { "api-server": "https://10.0.0.10:6443", "cluster-cidr": "10.244.0.0/16,fd00:10:244::/56" };
    const objects = objectsOf(template({ backends: { nft: {} } }));
    expect(objects.find(isConfig)).toMatchObject({
      data: { ...data, watchers: "https://10.0.0.11:12090,https://10.0.0.12:12090" },
    });
    const known = new Set(objects.map((object) => JSON.stringify(object)));
    const other = objectsOf(template({ backends: { nft: {} }, watchers: ["https://10.0.0.13:12090"] }));
    const changed = other.filter((object) => !known.has(JSON.stringify(object)));
    expect(changed.map(({ metadata }) => metadata.name)).toEqual(["kpng", "kpng-nft"]);
  });

  test("a backend has a node selector, resources and variables of its own, and pods the Secrets of the registry", () => {
    const nft = {
      nodeSelector: { "kpng.example/proxy": "nft" },
      env: { KPNG_METRICS_BIND_ADDRESS: ":10273" },
      resources: { limits: { memory: "1Gi" } },
    };
    const imagePullSecrets = [{ name: "registry" }];
    const objects = objectsOf(template({ backends: { nft }, imagePullSecrets, registry: "r.example", tag: "1" }));
    const [daemonSet, deployment] = objects.flatMap((object) => podSpecOf(object) ?? []);
    expect(deployment).toMatchObject({ imagePullSecrets });
    expect(daemonSet).toMatchObject({
      imagePullSecrets,
      nodeSelector: { "kubernetes.io/os": "linux", ...nft.nodeSelector },
      containers: [{ image: "r.example/kpng-nft:1", resources: nft.resources }],
    });
    const env = daemonSet?.containers[0]?.env?.filter(({ name }) => name === "KPNG_METRICS_BIND_ADDRESS");
    expect(env).toEqual([{ name: "KPNG_METRICS_BIND_ADDRESS", value: ":10273" }]);
  });

  test("the alerts and the dashboard are those of deploy/monitoring", () => {
    const objects = objectsOf(template({ monitoring: { rules: true, dashboard: true } }));
    const rules = parse(readFileSync("deploy/monitoring/rules.yaml", "utf8"));
    expect(objects.find(({ kind }) => kind === "PrometheusRule")?.spec).toEqual(rules);
    const dashboard = objects.find(({ metadata }) => metadata.name === "kpng-dashboard");
    expect(dashboard).toMatchObject({
      data: { "kpng.json": readFileSync("deploy/monitoring/dashboard.json", "utf8") },
    });
  });

  test.each(refused)("wrong values are refused: %s", (message, values) => {
    expect(() => template(values)).toThrow(message);
  });

  test("every object is valid, strictly checked by the API server", { timeout: 240_000 }, () => {
    const values = { backends: every, watcher: { clientCertificates: true }, monitoring: { dashboard: true } };
    const text = template(values);
    const applied = shell.run("kubectl apply --server-side --dry-run=server --validate=strict -f -", text);
    expect(applied.match(/serverside-applied/g)?.length).toBe(objectsOf(text).length);
  });

  test("the commands of the guide install the chart, also over the manifests, and remove it", {
    timeout: 240_000,
  }, async () => {
    shell.install();
    const { api } = cluster();
    const path = "/apis/apps/v1/namespaces/kube-system/deployments/kpng-watcher";
    const { metadata: before } = await api.get(path);
    writeFileSync(join(shell.clone, "my-cluster", "values.yaml"), guideValues);
    const [makeArchive = "", install = ""] = commandsOfGuide("With Helm").join("").trimEnd().split("\n");
    shell.run(makeArchive);
    expect(() => shell.run(install)).toThrow("invalid ownership metadata");
    const said = shell.run(`${install} --take-ownership --force-conflicts`);
    expect(said).toContain("kubectl -n kube-system rollout status daemonset/kpng-nft --timeout 2m");
    expect((await api.get(path)).metadata.uid).toBe(before.uid);
    shell.run("helm uninstall kpng --namespace kube-system");
    shell.run(install);
    shell.run("helm uninstall kpng --namespace kube-system");
    expect(await api.list("/apis/apps/v1/namespaces/kube-system/daemonsets")).toEqual([]);
  });
});

/** YAML 1.1, which Kubernetes reads: 0440 is octal. */
function objectsOf(text: string): readonly KubeObject[] {
  const objects = parseAllDocuments(text, { version: "1.1" }).map((document) => document.toJS() as KubeObject | null);
  return objects.filter((object) => object !== null);
}

/** In the manifests, users make the ConfigMap themselves. */
function isConfig({ kind, metadata }: KubeObject): boolean {
  return kind === "ConfigMap" && metadata.name === "kpng";
}

/**
 * Returns the objects by kind and name, with the lists whose order has no meaning sorted. The chart restarts pods when the
 * ConfigMap changes; in the manifests, users do.
 */
function comparable(objects: readonly KubeObject[]): unknown {
  const normalize = (key: string, value: unknown): unknown => {
    if (key === "annotations" && JSON.stringify(value).startsWith('{"checksum/config":')) return undefined;
    if (!["env", "volumes", "volumeMounts"].includes(key)) return value;
    return (value as readonly { readonly name: string }[]).toSorted((a, b) => a.name.localeCompare(b.name));
  };
  return Object.fromEntries(
    objects.map((object) => [
      `${object.kind}/${object.metadata.name}`,
      JSON.parse(JSON.stringify(object), normalize) as unknown,
    ]),
  );
}
