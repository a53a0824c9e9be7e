/** The fields of pod templates that tests of the manifests read. Shapes are those of the Kubernetes API. */
export interface PodSpec {
  readonly serviceAccountName?: string;
  readonly hostPID?: boolean;
  readonly automountServiceAccountToken?: boolean;
  readonly terminationGracePeriodSeconds?: number;
  readonly securityContext?: { readonly runAsUser?: number; readonly runAsGroup?: number; readonly fsGroup?: number };
  readonly containers: readonly Container[];
  readonly volumes?: readonly Volume[];
}

/** A container; ours have one per pod. */
export interface Container {
  readonly name: string;
  readonly image: string;
  readonly command?: readonly string[];
  readonly args?: readonly string[];
  readonly env?: readonly EnvVar[];
  readonly ports?: readonly { readonly name: string; readonly containerPort: number }[];
  readonly livenessProbe?: Probe;
  readonly readinessProbe?: Probe;
  readonly securityContext?: {
    readonly runAsUser?: number;
    readonly runAsGroup?: number;
    readonly readOnlyRootFilesystem?: boolean;
    readonly allowPrivilegeEscalation?: boolean;
    readonly privileged?: boolean;
    readonly capabilities?: { readonly drop?: readonly string[]; readonly add?: readonly string[] };
  };
  readonly volumeMounts?: readonly VolumeMount[];
}

export interface EnvVar {
  readonly name: string;
  readonly value?: string;
  readonly valueFrom?: {
    readonly configMapKeyRef?: { readonly name: string; readonly key: string };
    readonly fieldRef?: { readonly fieldPath: string };
  };
}

export interface Probe {
  readonly httpGet?: { readonly host?: string; readonly port: string | number; readonly path: string };
}

interface VolumeMount {
  readonly name: string;
  readonly mountPath: string;
  readonly readOnly?: boolean;
}

export interface Volume {
  readonly name: string;
  readonly secret?: { readonly secretName: string; readonly defaultMode?: number };
  readonly configMap?: { readonly name: string };
  readonly projected?: {
    readonly sources: readonly {
      readonly serviceAccountToken?: { readonly path: string; readonly audience?: string };
    }[];
  };
  readonly emptyDir?: unknown;
  readonly hostPath?: { readonly path: string; readonly type?: string };
}
