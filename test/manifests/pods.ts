import type { V1EnvVar } from "@kubernetes/client-node";
import type { ApiClient, KubeObject } from "../cluster/api-client.ts";
import type { PodSpec } from "./pod-spec.ts";

/** A pod that exists at the API server, bound to a node. */
export interface Pod {
  readonly name: string;
  readonly node: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly spec: PodSpec;
  /** Whether its account mounts a token by default. */
  readonly mountsToken: boolean;
  /** Returns a token of its account that is bound to the pod. Default audience: the API server. */
  requestToken(audience?: string): Promise<string>;
}

const namespace = "/api/v1/namespaces/kube-system";

/**
 * Creates a pod from the template of a Deployment or DaemonSet at the API server, and binds it to a node. The
 * controllers and the scheduler would do the same; tests of the manifests run without them.
 */
export async function createPodOf(api: ApiClient, workload: KubeObject, node: string): Promise<Pod> {
  const name = `${workload.metadata.name}-${node}`;
  const { template } = workload.spec as {
    readonly template: {
      readonly metadata: { readonly labels: Readonly<Record<string, string>> };
      readonly spec: PodSpec;
    };
  };
  const { labels } = template.metadata;
  await api.create(`${namespace}/pods`, {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, labels },
    spec: template.spec,
  });
  await api.create(`${namespace}/pods/${name}/binding`, {
    apiVersion: "v1",
    kind: "Binding",
    metadata: { name },
    target: { apiVersion: "v1", kind: "Node", name: node },
  });
  const created = await api.get(`${namespace}/pods/${name}`);
  const spec = created.spec as PodSpec;
  const { serviceAccountName } = spec;
  const account = serviceAccountName && (await api.get(`${namespace}/serviceaccounts/${serviceAccountName}`));
  return {
    name,
    node,
    labels: created.metadata.labels ?? {},
    spec,
    // A static pod has no account.
    mountsToken: typeof account === "object" && account.automountServiceAccountToken !== false,
    requestToken: (audience) =>
      api.requestToken(spec.serviceAccountName ?? "default", {
        ...(audience === undefined ? {} : { audiences: [audience] }),
        boundObjectRef: { kind: "Pod", apiVersion: "v1", name },
      }),
  };
}

/**
 * Returns the environment of a pod's container, as a kubelet computes it.
 *
 * Errors: a missing ConfigMap or key, in the kubelet's words; a source that the manifests do not use.
 */
export async function environmentOf(api: ApiClient, pod: Pod): Promise<Readonly<Record<string, string>>> {
  const values: Record<string, string> = { KUBERNETES_SERVICE_HOST: "10.96.0.1", KUBERNETES_SERVICE_PORT: "443" };
  for (const variable of pod.spec.containers[0]?.env ?? [])
    values[variable.name] = await resolveVariable(api, pod, variable);
  return values;
}

async function resolveVariable(api: ApiClient, pod: Pod, { name, value = "", valueFrom }: V1EnvVar): Promise<string> {
  if (valueFrom === undefined) return value;
  const { configMapKeyRef: ref, fieldRef } = valueFrom;
  if (ref !== undefined) {
    const { data = {} } = await api.get(`${namespace}/configmaps/${ref.name}`);
    const found = (data as Readonly<Record<string, string>>)[ref.key];
    if (found === undefined) throw new Error(`couldn't find key ${ref.key} in ConfigMap kube-system/${ref.name}`);
    return found;
  }
  if (fieldRef?.fieldPath === "spec.nodeName") return pod.node;
  const [, label] = /^metadata\.labels\['(.+)'\]$/.exec(fieldRef?.fieldPath ?? "") ?? [];
  if (label === undefined) throw new Error(`variable ${name} has a source that this test does not know`);
  return pod.labels[label] ?? "";
}
