import type { Family } from "@kpng/model/address.ts";
import type { ProbeSender } from "./probes.ts";

/**
 * A packet with different outcomes by kube-proxy's rules and by our plan. `comparePackets` finds differences;
 * `SettledDifferences`, `format-report.ts` and `shadow-metrics.ts` take them. A file of its own, because all four use
 * the type.
 */
export interface Difference {
  /** *Shape:* `namespace/name:port`; "" if unknown. */
  readonly servicePort: string;
  readonly family: Family;
  /** `cluster IP`, `external IP`, `load-balancer IP`, `node port`; `address` if no Service of the view has it. */
  readonly addressKind: string;
  /** "tcp", "udp" or "sctp". */
  readonly protocol: string;
  readonly address: string;
  readonly port: number;
  readonly sender: ProbeSender;
  readonly source: string;
  /** The interface that the packet arrives on; absent if the node itself sends it. */
  readonly inInterface?: string;
  /** Its possible outcomes, sorted; e.g. `10.1.1.11:8080 (masqueraded)`, `refused`, `dropped`, `no rule`. */
  readonly kubeProxy: readonly string[];
  readonly kpng: readonly string[];
}

/** Returns the same text for equal differences. `SettledDifferences` and `shadowTask` recognize differences by it. */
export function differenceKey(difference: Difference): string {
  return JSON.stringify(difference);
}
