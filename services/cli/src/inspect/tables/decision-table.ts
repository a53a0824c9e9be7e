import { type EndpointDecision, EndpointDecisionSchema } from "@kpng/model/gen/kpng/inspect/v1/explain_pb.ts";
import { formatProtocol } from "../print/format.ts";
import type { TableSpec } from "../print/output.ts";

/**
 * Columns for endpoints as one node uses them, with the reason why it uses each or not. `kpng get view`, `kpng explain`
 * and `kpng describe endpoint` print them. Separate from these commands, because all three need it.
 */
export const decisionTable: TableSpec<typeof EndpointDecisionSchema> = {
  schema: EndpointDecisionSchema,
  columns: [
    { title: "NAMESPACE", cell: ({ namespace }) => namespace },
    { title: "SERVICE", cell: ({ service }) => service },
    { title: "PORT", cell: formatPort },
    { title: "ENDPOINT", cell: formatEndpoint },
    { title: "POD", cell: ({ pod }) => pod },
    { title: "NODE", cell: ({ node }) => node },
    { title: "REASON", cell: ({ text }) => text, style: ({ isUsed }) => (isUsed ? "good" : "idle") },
    { title: "SENT", cell: ({ isTold }) => (isTold ? "yes" : "no"), isWide: true },
    { title: "SETS", cell: formatSets, isWide: true },
    { title: "SLICE", cell: ({ slice }) => slice, isWide: true },
  ],
};

function formatPort({ portName, protocol }: EndpointDecision): string {
  return [portName, formatProtocol(protocol)].filter((part) => part !== "").join("/");
}

/** Formats `10.1.0.7:80` or `[fd00::7]:80`; the address alone if there is no port. */
function formatEndpoint({ address, port }: EndpointDecision): string {
  if (port === 0) return address;
  return `${address.includes(":") ? `[${address}]` : address}:${port}`;
}

function formatSets({ isInClusterSet, isInLocalSet }: EndpointDecision): string {
  return [isInClusterSet ? "cluster" : "", isInLocalSet ? "local" : ""].filter((set) => set !== "").join(",");
}
