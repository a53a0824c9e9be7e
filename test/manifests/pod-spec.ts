import type { V1Container, V1PodSpec } from "@kubernetes/client-node";

/** The pod template of a manifest. */
export interface PodSpec extends V1PodSpec {
  containers: Container[];
}

/** A container; ours have one per pod. */
export interface Container extends V1Container {
  image: string;
}
