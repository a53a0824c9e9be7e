import type { Kind } from "../../source.ts";

/**
 * A collection of the Kubernetes API that the source lists and watches. There is one for each kind, for example
 * Services; requests and metrics name it. A file of its own, because requests, reflectors and metrics share it.
 */
export interface Resource {
  readonly kind: KubeKind;
  /** Path of the collection over all namespaces, e.g. `/api/v1/services`. */
  readonly path: string;
  /** *Shape:* `resource.group` as in RBAC rules, e.g. `endpointslices.discovery.k8s.io`. */
  readonly resource: string;
  /** Label selector of its lists and watches. Default: all objects. */
  readonly labelSelector?: string | undefined;
}

/** Name of a watched kind in metrics, logs and health. */
export type KubeKind = Kind | "servicecidrs";
