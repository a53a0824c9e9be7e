import { expect, test } from "vitest";
import { parse } from "yaml";
import { findKubectl } from "./find-kubectl.ts";
import { staticPodsGuide } from "./install-guide.ts";
import { buildKustomization } from "./kustomizations.ts";
import type { PodSpec } from "./pod-spec.ts";

const kubectl = (await findKubectl()) ?? "";
const isSkipped = kubectl === "" && process.env.CI !== "true";

test.skipIf(isSkipped)(
  "the static pod of the guide needs nothing from the API server, and is otherwise the pod of the DaemonSet",
  () => {
    const { spec: pod } = parse(staticPodsGuide().pod) as { readonly spec: PodSpec };
    for (const word of ["configMap", "secret", "serviceAccountName", "metadata.labels"])
      expect(JSON.stringify(pod)).not.toContain(word);

    const objects = buildKustomization(kubectl, "deploy/kubernetes/overlays/replace-kube-proxy/nft");
    const daemonSet = objects.find(({ kind }) => kind === "DaemonSet") as unknown as {
      readonly spec: { readonly template: { readonly spec: PodSpec & { readonly serviceAccountName: string } } };
    };
    const { serviceAccountName: _account, ...original } = daemonSet.spec.template.spec;
    expect({ ...pod, containers: [], volumes: [] }).toEqual({ ...original, containers: [], volumes: [] });
    const { env, volumeMounts, image, ...rest } = pod.containers[0] ?? expect.fail("no container");
    const {
      env: ofOriginal,
      volumeMounts: mounts,
      image: originalImage,
      ...originalRest
    } = original.containers[0] ?? expect.fail("no container");
    expect(rest).toEqual(originalRest);
    expect(image).toBe(`registry.example/kpng/${originalImage}`);

    const files = ["KPNG_TLS_CA", "KPNG_TLS_CRT", "KPNG_TLS_KEY"];
    const named = (variables: typeof env): Map<string, unknown> =>
      new Map(variables?.map((variable) => [variable.name, variable]));
    const [settings, originals] = [named(env), named(ofOriginal)];
    expect([...originals.keys()].filter((name) => !settings.has(name))).toEqual(["KPNG_TOKEN_FILE"]);
    expect([...settings.keys()].filter((name) => !originals.has(name))).toEqual(files.slice(1));
    for (const [name, variable] of settings)
      if (![...files, "KPNG_API", "KPNG_CLUSTER_CIDR"].includes(name)) expect(variable).toEqual(originals.get(name));

    const ofObjects = ["ca", "config", "token"];
    const others = mounts?.filter(({ name }) => !ofObjects.includes(name));
    expect(new Set(volumeMounts)).toEqual(new Set([...(others ?? []), volumeMounts?.[0]]));
    const volumes = original.volumes?.filter(({ name }) => !ofObjects.includes(name));
    expect(new Set(pod.volumes)).toEqual(new Set([...(volumes ?? []), pod.volumes?.[0]]));
  },
);
