import { type Traffic, TrafficSchema } from "@kpng/model/gen/kpng/inspect/v1/traffic_pb.ts";
import { formatBytes } from "../print/format.ts";
import type { TableSpec } from "../print/output.ts";
import type { Column } from "../print/table.ts";

/**
 * Columns for the traffic of Services. `topServicesCommand` prints them; the status page has the same columns. Separate
 * from the command, which requests the rows: this file formats them.
 */
export const trafficTable: TableSpec<typeof TrafficSchema> = {
  schema: TrafficSchema,
  nameOf: ({ namespace, name }) => `service/${namespace}/${name}`,
  columns: [
    { title: "SERVICE", cell: ({ namespace, name }) => (name === "" ? "(others)" : `${namespace}/${name}`) },
    ...trafficColumns(),
    { title: "NODES", cell: ({ nodeCount }) => String(nodeCount) },
  ],
};

/** Columns for the traffic of one Service, with a row for each node. */
export const trafficByNodeTable: TableSpec<typeof TrafficSchema> = {
  schema: TrafficSchema,
  nameOf: ({ node }) => `node/${node}`,
  columns: [{ title: "NODE", cell: ({ node }) => node }, ...trafficColumns()],
};

function trafficColumns(): readonly Column<Traffic>[] {
  return [
    { title: "CONN/S", cell: ({ connectionsPerSecond }) => connectionsPerSecond.toFixed(1) },
    { title: "BYTES/S", cell: (row) => bytesCell(row, row.bytesPerSecond) },
    { title: "CONNECTIONS", cell: ({ connections }) => String(connections) },
    // A proxy that carries the traffic itself counts no packets.
    { title: "PACKETS", cell: (row) => String(row.packetsFromClients + row.packetsToClients || "") },
    { title: "BYTES-IN", cell: (row) => bytesCell(row, Number(row.bytesFromClients)) },
    { title: "BYTES-OUT", cell: (row) => bytesCell(row, Number(row.bytesToClients)) },
  ];
}

/** Bytes are unknown where none were ever counted. */
function bytesCell({ bytesFromClients, bytesToClients }: Traffic, bytes: number): string {
  return bytesFromClients + bytesToClients === 0n ? "" : formatBytes(bytes);
}
