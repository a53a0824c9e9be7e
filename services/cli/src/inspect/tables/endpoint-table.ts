import { type Endpoint, EndpointSchema, Protocol } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import { formatProtocol } from "../print/format.ts";
import type { TableSpec } from "../print/output.ts";

/**
 * Columns for endpoints of EndpointSlices. `kpng get endpoints`, `kpng describe service` and `kpng describe node` print
 * them. Separate from these commands, because all three need it, and from `decisionTable`, which shows endpoints as one
 * node uses them.
 */
export const endpointTable: TableSpec<typeof EndpointSchema> = {
  schema: EndpointSchema,
  columns: [
    { title: "NAMESPACE", cell: ({ namespace }) => namespace },
    { title: "SERVICE", cell: ({ service }) => service },
    { title: "ADDRESS", cell: ({ addresses }) => addresses.join(",") },
    { title: "PORTS", cell: formatPorts },
    { title: "POD", cell: ({ pod }) => pod },
    { title: "NODE", cell: ({ node }) => node },
    { title: "STATE", cell: formatState, style: ({ isReady }) => (isReady ? "good" : "doubtful") },
    { title: "ZONE", cell: ({ zone }) => zone, isWide: true },
    { title: "FOR-ZONES", cell: ({ hintedZones }) => hintedZones.join(","), isWide: true },
    { title: "FOR-NODES", cell: ({ hintedNodes }) => hintedNodes.join(","), isWide: true },
    { title: "SLICE", cell: ({ slice }) => slice, isWide: true },
  ],
};

/** Formats `http=8080/TCP`; `8080/TCP` if the port has no name. */
export function formatPorts({ ports }: Endpoint): string {
  return ports
    .map(({ name, port, protocol }) => {
      const number = protocol === Protocol.UNSPECIFIED ? String(port) : `${port}/${formatProtocol(protocol)}`;
      return name === "" ? number : `${name}=${number}`;
    })
    .join(",");
}

/** Formats the conditions: "ready", "not ready", "terminating, serving". */
export function formatState({ isReady, isServing, isTerminating }: Endpoint): string {
  if (isReady) return isTerminating ? "ready, terminating" : "ready";
  if (isTerminating) return isServing ? "terminating, serving" : "terminating";
  return "not ready";
}
