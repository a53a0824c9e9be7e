import { execFileSync, spawnSync } from "node:child_process";
import { expect, test } from "vitest";
import { parse, stringify } from "yaml";
import { type KubeObject, makeStaticPod } from "../../deploy/static-pods/static-pod.ts";
import { findKubectl } from "./find-kubectl.ts";
import { staticPodsGuide } from "./install-guide.ts";
import { buildKustomization } from "./kustomizations.ts";
import type { PodSpec } from "./pod-spec.ts";

const kubectl = (await findKubectl()) ?? "";
const isSkipped = kubectl === "" && process.env.CI !== "true";

const values = { watchers: "https://10.0.0.11:12090", "cluster-cidr": "10.244.0.0/16" };
const config: KubeObject = { kind: "ConfigMap", metadata: { name: "kpng" }, data: values };

function objectsOf(backend: string): readonly KubeObject[] {
  const folder = `deploy/kubernetes/overlays/replace-kube-proxy/${backend}`;
  return buildKustomization(kubectl, folder) as unknown as readonly KubeObject[];
}

test.skipIf(isSkipped).each(["iptables", "nft", "ipvs", "ebpf", "userspace"])(
  "the static pod of %s needs nothing from the API server, and is otherwise the pod of the DaemonSet",
  (backend) => {
    const objects = objectsOf(backend);
    const pod = makeStaticPod([...objects, config]) as { readonly spec: PodSpec };
    const text = JSON.stringify(pod);
    for (const word of ["configMap", "secret", "serviceAccount", "metadata.labels"]) expect(text).not.toContain(word);

    const daemonSet = objects.find(({ kind }) => kind === "DaemonSet") as unknown as {
      readonly spec: { readonly template: { readonly spec: PodSpec } };
    };
    const [container] = pod.spec.containers;
    const [original] = daemonSet.spec.template.spec.containers;
    const { env, volumeMounts, ...rest } = container ?? { env: [] };
    const { env: originalEnv, volumeMounts: originalMounts, ...originalRest } = original ?? { env: [] };
    expect(rest).toEqual(originalRest);
    const settings = new Map(env?.map(({ name, value }) => [name, value]));
    expect(settings.get("KPNG_API")).toBe(values.watchers);
    expect(settings.has("KPNG_TOKEN_FILE")).toBe(false);
    const missing = originalEnv?.map(({ name }) => name).filter((name) => !settings.has(name));
    expect(missing).toEqual(["KPNG_ZONE", "KPNG_TOKEN_FILE"]);
    const names = (mounts: PodSpec["containers"][number]["volumeMounts"]): readonly string[] =>
      (mounts ?? []).map(({ name }) => name).toSorted();
    const kept = names(originalMounts).filter((name) => !["ca", "config", "token"].includes(name));
    expect(names(volumeMounts)).toEqual(["certificates", ...kept].toSorted());
    expect((pod.spec.volumes ?? []).map(({ name }) => name).toSorted()).toEqual(names(volumeMounts));
  },
);

test.skipIf(isSkipped)("the command of the guide prints the pod, with the image of the registry", () => {
  const [block = ""] = staticPodsGuide().commands;
  const script = block
    .replace(/kubectl --namespace kube-system get .*?;/, "cat config.yaml;")
    .replace("cat config.yaml", `printf '%s' '${stringify(config)}'`)
    .replaceAll("kubectl kustomize", `${kubectl} kustomize`)
    .replace("npx node", process.execPath)
    .replace(/> kpng-nft.yaml/, "");
  const pod = parse(execFileSync("sh", ["-c", script], { encoding: "utf8" })) as { readonly spec: PodSpec };
  expect(pod.spec.containers.map(({ image }) => image)).toEqual(["registry.example/kpng/kpng-nft:0.1.0"]);
});

test("a missing value or DaemonSet is named", () => {
  const run = (input: string): ReturnType<typeof spawnSync> =>
    spawnSync(process.execPath, ["deploy/static-pods/main.ts"], { input, encoding: "utf8" });
  const empty = run("");
  expect([empty.status, empty.stderr]).toEqual([1, "Error: expected exactly one DaemonSet, and the ConfigMap kpng\n"]);
  const env = [{ name: "KPNG_API", valueFrom: { configMapKeyRef: { name: "kpng", key: "watchers" } } }];
  const template = { metadata: { labels: {} }, spec: { containers: [{ env, volumeMounts: [] }], volumes: [] } };
  const daemonSet = { kind: "DaemonSet", metadata: { name: "kpng-nft" }, spec: { template } };
  expect(() => makeStaticPod([daemonSet])).toThrow("ConfigMap kpng: expected a value for watchers");
});
