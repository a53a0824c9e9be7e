/**
 * Rows of the inspect API in protobuf's JSON, as far as the status page shows them (proto/kpng/inspect/v1). Fields with
 * default values are absent there. `inspect-client.ts` returns the rows, and the sections show them. Written by hand,
 * because the generated types describe decoded messages, not their JSON.
 */
export interface ServiceRow {
  readonly namespace?: string;
  readonly name?: string;
  readonly type?: string;
  readonly isHeadless?: boolean;
  readonly clusterIps?: readonly string[];
  readonly externalIps?: readonly string[];
  readonly loadBalancerIps?: readonly string[];
  readonly ports?: readonly {
    readonly name?: string;
    readonly protocol?: string;
    readonly port?: number;
    readonly nodePort?: number;
  }[];
  readonly internalTrafficPolicy?: string;
  readonly externalTrafficPolicy?: string;
  readonly endpoints?: { readonly ready?: number; readonly terminating?: number; readonly notReady?: number };
}

/** *Shape:* `namespace/name`. */
export function serviceKey({ namespace = "", name = "" }: ServiceRow): string {
  return `${namespace}/${name}`;
}

/** An endpoint of a Service. */
export interface EndpointRow {
  readonly addresses?: readonly string[];
  readonly pod?: string;
  readonly node?: string;
  readonly zone?: string;
  readonly isReady?: boolean;
  readonly isServing?: boolean;
  readonly isTerminating?: boolean;
  readonly hintedZones?: readonly string[];
  readonly hintedNodes?: readonly string[];
}

/** Decision of a node about an endpoint, with its reason. */
export interface DecisionRow {
  readonly portName?: string;
  readonly protocol?: string;
  readonly address?: string;
  readonly port?: number;
  readonly pod?: string;
  readonly node?: string;
  readonly isUsed?: boolean;
  readonly text?: string;
}

/** Path of a packet. */
export interface Explanation {
  readonly destinationAddress?: string;
  readonly port?: number;
  readonly protocol?: string;
  readonly namespace?: string;
  readonly service?: string;
  readonly verdict?: string;
  readonly isMasqueraded?: boolean;
  readonly steps?: readonly { readonly stage?: string; readonly text?: string }[];
  readonly endpoints?: readonly DecisionRow[];
  readonly assumptions?: readonly string[];
}

/** Word of an enum value. *Shape:* `VERDICT_FORWARD` → `forward`. */
export function wordOf(value: string | undefined, prefix: string): string {
  return (value ?? "").replace(`${prefix}_`, "").toLowerCase().replaceAll("_", " ");
}
