import { X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { beforeAll, expect, test } from "vitest";
import { stringify } from "yaml";
import { describeCluster } from "../cluster/describe-cluster.ts";
import { identityRight, mayAccount, type Right, refusedRights, watchedKinds } from "../cluster/rbac.ts";
import { until } from "../cluster/until.ts";
import { findKubectl } from "./find-kubectl.ts";
import { type GuideShell, openGuideShell } from "./guide-shell.ts";
import { commandsOfGuide } from "./install-guide.ts";
import { buildKustomization, kustomizations } from "./kustomizations.ts";

const kubectl = (await findKubectl()) ?? "";
const whyNot = kubectl === "" ? "no kubectl" : undefined;

/** Time limit of a test that runs many commands, on a busy machine. */
const timeout = 240_000;

const name = "the manifests at a real API server, installed as docs/install.md says";
await describeCluster(name, { whyNot, hasControllers: false }, (cluster) => {
  let shell: GuideShell;
  beforeAll(async () => {
    shell = await openGuideShell(cluster(), kubectl);
  });

  test("every object is valid, strictly checked by the API server", { timeout }, async () => {
    const operator = resolve("test/manifests/operator");
    const module = "github.com/prometheus-operator/prometheus-operator";
    const { Dir } = JSON.parse(shell.run(`cd ${operator} && go mod download -json ${module}`)) as { Dir: string };
    shell.run(`kubectl create -f ${Dir}/example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml`);
    shell.run("kubectl wait --for condition=established crd/podmonitors.monitoring.coreos.com --timeout 60s");
    const objects = kustomizations.flatMap((one) => buildKustomization(kubectl, one)).map((one) => stringify(one));
    const files = ["components/monitoring/pod-monitors.yaml", "config.yaml"];
    const texts = [...objects, ...files.map((file) => readFileSync(`deploy/kubernetes/${file}`, "utf8"))];
    const apply = "kubectl apply --server-side --dry-run=server --validate=strict -f -";
    // pod-monitors.yaml has two objects.
    expect(shell.run(apply, texts.join("---\n")).match(/serverside-applied/g)?.length).toBe(objects.length + 3);
    const misspelt = objects.find((text) => text.includes("hostNetwork:"))?.replace("hostNetwork:", "hostNetwrk:");
    expect(() => shell.run(apply, misspelt)).toThrow("hostNetwrk");
  });

  test("the commands of the guide install the manifests", { timeout }, async () => {
    shell.install();
    const { api } = cluster();
    const [deployments, daemonSets] = await Promise.all(
      ["deployments", "daemonsets"].map((kind) => api.list(`/apis/apps/v1/namespaces/kube-system/${kind}`)),
    );
    expect([...(deployments ?? []), ...(daemonSets ?? [])].map(({ metadata }) => metadata.name)).toEqual([
      "kpng-watcher",
      "kpng-nft",
    ]);
    // A surplus watcher would stay pending, and every update would wait for it.
    const labelled = await api.list("/api/v1/nodes?labelSelector=node-role.kubernetes.io/kpng-watcher");
    expect(deployments?.map(({ spec }) => spec)).toMatchObject([{ replicas: labelled.length }]);
  });

  test("accounts of nodes have no right, relays may only review tokens, and a single process may read", {
    timeout,
  }, async () => {
    const { api } = cluster();
    shell.run("kubectl apply -f deploy/kubernetes/overlays/single-process/rbac.yaml");
    const watched = watchedKinds.flatMap((kind) => ["get", "list", "watch"].map((verb) => ({ ...kind, verb })));
    const reads = [...watched, identityRight];
    await until("the rights are effective", () =>
      mayAccount(api, "kpng-single-process", { verb: "watch", resource: "services" }),
    );
    const reviews = { verb: "create", resource: "tokenreviews", group: "authentication.k8s.io" };
    const allowed = async (account: string, rights: readonly Right[]): Promise<readonly Right[]> => {
      const answers = await Promise.all(rights.map((right) => mayAccount(api, account, right)));
      return rights.filter((_, index) => answers[index]);
    };
    expect(await allowed("kpng-single-process", [...reads, ...refusedRights, reviews])).toEqual(reads);
    expect(await allowed("kpng-node", [...reads, ...refusedRights, reviews])).toEqual([]);
    expect(await allowed("kpng-relay", [...reads, ...refusedRights, reviews])).toEqual([reviews]);
  });

  test("the commands of the guide replace the CA, and remove kpng", { timeout }, async () => {
    const { api } = cluster();
    const read = async (kind: string, object: string, key: string): Promise<string> => {
      const { data } = await api.get(`/api/v1/namespaces/kube-system/${kind}/${object}`);
      return (data as Readonly<Record<string, string>>)[key] ?? "";
    };
    const file = (path: string): string => readFileSync(join(shell.clone, path), "utf8");
    const ca = (): Promise<string> => read("configmaps", "kpng-ca", "ca.crt");
    const served = async (): Promise<string> =>
      Buffer.from(await read("secrets", "kpng-watcher-tls", "tls.crt"), "base64").toString();
    const guide = "docs/guides/certificates.md";
    const [trustBoth = "", useNew = "", forgetOld = ""] = commandsOfGuide("Replace the CA", guide);
    const [useCertManager = ""] = commandsOfGuide("cert-manager", guide);
    shell.run(trustBoth);
    const both = file("kpng-certificates/ca.crt") + file("new-certificates/ca.crt");
    expect(await ca()).toBe(both);
    shell.run(useNew);
    const replaced = await served();
    expect(replaced).toBe(file("new-certificates/serving.crt"));
    const newCa = file("new-certificates/ca.crt");
    shell.run(forgetOld);
    expect(await ca()).toBe(newCa);

    // The next certificate is of the new CA, too.
    for (const command of commandsOfGuide("4. Make")) shell.run(command);
    expect(await ca()).toBe(newCa);
    const renewed = await served();
    expect(renewed).not.toBe(replaced);
    expect(new X509Certificate(renewed).verify(new X509Certificate(newCa).publicKey)).toBe(true);

    shell.run(useCertManager);
    for (const one of commandsOfGuide("Uninstall").filter((command) => command.includes("delete"))) shell.run(one);
    const apps = ["daemonsets", "deployments"].map((kind) => `/apis/apps/v1/namespaces/kube-system/${kind}`);
    const core = ["configmaps", "secrets"].map((kind) => `/api/v1/namespaces/kube-system/${kind}`);
    for (const collection of [...apps, ...core]) {
      const names = (await api.list(collection)).map(({ metadata }) => metadata.name);
      expect(names.filter((one) => one.startsWith("kpng"))).toEqual([]);
    }
  });
});
