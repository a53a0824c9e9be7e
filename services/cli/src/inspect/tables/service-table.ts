import {
  type Service,
  ServiceSchema,
  type TrafficPolicy,
  TrafficPolicySchema,
} from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import type { CellStyle } from "../print/color.ts";
import { formatEnum, formatLabels, formatMs, formatProtocol } from "../print/format.ts";
import type { TableSpec } from "../print/output.ts";

/**
 * Columns for Services, with the number of their endpoints. `kpng get services` prints them. Separate from the command,
 * which requests the rows: this file formats them.
 */
export const serviceTable: TableSpec<typeof ServiceSchema> = {
  schema: ServiceSchema,
  nameOf: ({ namespace, name }) => `service/${namespace}/${name}`,
  columns: [
    { title: "NAMESPACE", cell: ({ namespace }) => namespace },
    { title: "NAME", cell: ({ name }) => name },
    { title: "TYPE", cell: ({ type, isHeadless }) => (isHeadless ? "headless" : type) },
    { title: "CLUSTER-IP", cell: ({ clusterIps }) => clusterIps.join(",") },
    {
      title: "EXTERNAL-IP",
      cell: ({ externalIps, loadBalancerIps }) => [...externalIps, ...loadBalancerIps].join(","),
    },
    { title: "PORTS", cell: formatPorts },
    { title: "READY", cell: formatReady, style: styleOfReady },
    { title: "POLICY", cell: formatPolicies, isWide: true },
    { title: "AFFINITY", cell: ({ affinitySeconds: s }) => (s === 0 ? "" : formatMs(s * 1_000)), isWide: true },
    { title: "SOURCE-RANGES", cell: ({ sourceRanges }) => sourceRanges.join(","), isWide: true },
    { title: "HEALTH-PORT", cell: ({ healthCheckNodePort: port }) => (port === 0 ? "" : String(port)), isWide: true },
    { title: "PROXY", cell: ({ serviceProxyName }) => serviceProxyName, isWide: true },
    { title: "LABELS", cell: ({ labels }) => formatLabels(labels), isWide: true },
  ],
};

/** Formats ports as kubectl does: `80:30080/TCP`. */
function formatPorts({ ports }: Service): string {
  return ports
    .map(({ port, nodePort, protocol }) => `${port}${nodePort === 0 ? "" : `:${nodePort}`}/${formatProtocol(protocol)}`)
    .join(",");
}

/** Formats the number of ready endpoints and of all endpoints: `2/3`. */
function formatReady({ endpoints }: Service): string {
  const { ready = 0, terminating = 0, notReady = 0 } = endpoints ?? {};
  return `${ready}/${ready + terminating + notReady}`;
}

function styleOfReady({ isHeadless, type, endpoints }: Service): CellStyle | undefined {
  if (isHeadless || type === "ExternalName" || (endpoints?.ready ?? 0) > 0) return undefined;
  return (endpoints?.terminating ?? 0) > 0 ? "doubtful" : "bad";
}

function formatPolicies(service: Service): string {
  const formatPolicy = (policy: TrafficPolicy): string => formatEnum(TrafficPolicySchema, policy);
  return `internal ${formatPolicy(service.internalTrafficPolicy)}, external ${formatPolicy(service.externalTrafficPolicy)}`;
}
