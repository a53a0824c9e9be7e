/** A Node reduced to what a proxy uses. Source: core/v1 Node. */
export interface Node {
  readonly name: string;
  /** Label `topology.kubernetes.io/zone`; "" if absent. */
  readonly zone: string;
  /** Only labels that the source is configured to keep. */
  readonly labels: Readonly<Record<string, string>>;
  /** Only annotations that the source is configured to keep. */
  readonly annotations: Readonly<Record<string, string>>;
  /** Addresses from status.addresses: first the internal ones, then the external ones, each in their original order. */
  readonly addresses: readonly string[];
  /** spec.podCIDRs. */
  readonly podCIDRs: readonly string[];
  /** False while the Node is being deleted or carries the taint `ToBeDeletedByClusterAutoscaler`. */
  readonly isEligible: boolean;
}
