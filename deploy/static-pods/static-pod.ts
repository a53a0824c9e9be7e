/** An object of the Kubernetes API, as far as a static pod is made from it. */
export interface KubeObject {
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string; readonly labels?: object };
  readonly spec?: { readonly template?: PodTemplate };
  /** Values of a ConfigMap. */
  readonly data?: Readonly<Record<string, string>>;
}

interface PodTemplate {
  readonly metadata: { readonly labels: object };
  readonly spec: PodSpec;
}

interface PodSpec {
  readonly serviceAccountName?: string;
  readonly containers: readonly Container[];
  readonly volumes: readonly { readonly name: string }[];
}

interface Container {
  readonly env: readonly EnvVar[];
  readonly volumeMounts: readonly { readonly name: string }[];
}

interface EnvVar {
  readonly name: string;
  readonly value?: string;
  readonly valueFrom?: {
    readonly configMapKeyRef?: { readonly name: string; readonly key: string };
    readonly fieldRef?: { readonly fieldPath: string };
  };
}

/** Folder of each node with `ca.crt`, and the certificate of the node in `node.crt` and `node.key`. */
export const nodeFolder = "/etc/kpng";

/** Volumes of API objects, which a static pod cannot have. */
const objectVolumes = ["ca", "config", "token"];

/**
 * Returns the static pod of a backend: what its DaemonSet starts, without anything from the API server. `main.ts`
 * prints it, and a kubelet starts it even while there is no API server. One manifest serves all nodes.
 *
 * The values of the ConfigMap `kpng` become part of it. In place of the CA's ConfigMap and the account's token, it
 * reads the CA and a client certificate from `nodeFolder`. It has no zone, which is a label of pods of the API server.
 *
 * Pure; separate from `main.ts`, so that tests need no process. Errors: there is not exactly one DaemonSet, or a value
 * that it needs is missing.
 */
export function makeStaticPod(objects: readonly KubeObject[]): object {
  const [daemonSet, ...others] = objects.filter(({ kind }) => kind === "DaemonSet");
  const template = daemonSet?.spec?.template;
  if (daemonSet === undefined || template === undefined || others.length > 0) {
    throw new Error("expected exactly one DaemonSet, and the ConfigMap kpng");
  }
  const { serviceAccountName, containers, volumes, ...spec } = template.spec;
  const { name, namespace } = daemonSet.metadata;
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, namespace, labels: template.metadata.labels },
    spec: {
      ...spec,
      containers: containers.map((container) => ({
        ...container,
        env: [...environmentOf(container, objects), ...certificateOptions()],
        volumeMounts: [
          ...container.volumeMounts.filter((mount) => !objectVolumes.includes(mount.name)),
          { name: "certificates", mountPath: nodeFolder, readOnly: true },
        ],
      })),
      volumes: [
        ...volumes.filter((volume) => !objectVolumes.includes(volume.name)),
        { name: "certificates", hostPath: { path: nodeFolder, type: "Directory" } },
      ],
    },
  };
}

function environmentOf({ env }: Container, objects: readonly KubeObject[]): readonly EnvVar[] {
  return env.flatMap((variable) => {
    const { configMapKeyRef: ref, fieldRef } = variable.valueFrom ?? {};
    if (["KPNG_TLS_CA", "KPNG_TOKEN_FILE"].includes(variable.name)) return [];
    if (fieldRef?.fieldPath.startsWith("metadata.labels") === true) return [];
    if (ref === undefined) return [variable];
    const config = objects.find(({ kind, metadata }) => kind === "ConfigMap" && metadata.name === ref.name);
    const value = config?.data?.[ref.key];
    if (value === undefined) throw new Error(`ConfigMap ${ref.name}: expected a value for ${ref.key}`);
    return [{ name: variable.name, value }];
  });
}

function certificateOptions(): readonly EnvVar[] {
  return [
    { name: "KPNG_TLS_CA", value: `${nodeFolder}/ca.crt` },
    { name: "KPNG_TLS_CRT", value: `${nodeFolder}/node.crt` },
    { name: "KPNG_TLS_KEY", value: `${nodeFolder}/node.key` },
  ];
}
