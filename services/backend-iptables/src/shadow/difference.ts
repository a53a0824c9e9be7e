import type { Family } from "@kpng/model/address.ts";
import type { Sender } from "./probes.ts";

/** A packet that kube-proxy's rules and ours treat in different ways. */
export interface Difference {
  /** *Shape:* `namespace/name:port`; "" if no rule's comment says. */
  readonly servicePort: string;
  readonly family: Family;
  /** `cluster IP`, `external IP`, `load-balancer IP`, `node port`; `address` if the view does not have it. */
  readonly addressKind: string;
  /** "tcp", "udp" or "sctp". */
  readonly protocol: string;
  readonly address: string;
  readonly port: number;
  readonly sender: Sender;
  readonly source: string;
  /** The link that it comes in by; absent if the node itself sends it. */
  readonly inInterface?: string;
  /** What may become of it, sorted; e.g. `10.1.1.11:8080 (masqueraded)`, `refused`, `dropped`, `no rule`. */
  readonly kubeProxy: readonly string[];
  readonly kpng: readonly string[];
}

/** Two differences with the same text are the same. */
export function differenceKey(difference: Difference): string {
  return JSON.stringify(difference);
}
