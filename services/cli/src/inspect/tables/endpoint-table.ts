import { type Endpoint, EndpointSchema, Protocol } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import { formatProtocol } from "../print/format.ts";
import type { TableSpec } from "../print/output.ts";

/**
 * The columns of `kpng get endpoints`, one row for each endpoint of an EndpointSlice. The endpoints as one node uses
 * them have other columns: `decisionTable`. Separate from the command, which only requests the rows.
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
