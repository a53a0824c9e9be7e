import { createClient } from "@connectrpc/connect";
import {
  BackendInspectService,
  GetBackendResponseSchema,
  type RuleSet,
} from "@kpng/model/gen/kpng/inspect/v1/backend_pb.ts";
import { formatAge, formatDuration } from "../print/format.ts";
import { outputOptions, printRows, type RowKind, readOutputOptions } from "../print/output.ts";
import { type Column, formatTable } from "../print/table.ts";
import type { InspectCommand } from "../query/inspect-command.ts";

export const backendExamples = `
A backend answers on the unix socket of its option --inspect-socket.

Examples:
  COMMAND --api unix:///run/kpng/iptables.sock
  COMMAND --api unix:///run/kpng/iptables.sock -o yaml
`;

const backendTable: RowKind<typeof GetBackendResponseSchema> = {
  schema: GetBackendResponseSchema,
  columns: [
    { title: "PROGRAM", cell: ({ program }) => program },
    { title: "NODE", cell: ({ nodeName }) => nodeName },
    { title: "CONNECTED", cell: ({ isConnected }) => (isConnected ? "yes" : "no") },
    { title: "RECEIVED", cell: ({ receivedRevision }) => String(receivedRevision) },
    { title: "APPLIED", cell: ({ appliedRevision }) => String(appliedRevision) },
    { title: "SERVICES", cell: ({ serviceCount }) => String(serviceCount) },
    { title: "ENDPOINTS", cell: ({ endpointCount }) => String(endpointCount) },
    { title: "LAST-SYNC", cell: ({ lastSync }) => formatAge(lastSync?.startedAt) },
    { title: "TOOK", cell: ({ lastSync }) => formatDuration(lastSync?.duration) },
    { title: "AGE", cell: ({ startedAt }) => formatAge(startedAt), isWide: true },
    { title: "VERSION", cell: ({ version }) => version, isWide: true },
    { title: "ERROR", cell: ({ lastSync }) => lastSync?.error ?? "" },
  ],
};

const ruleSetColumns: readonly Column<RuleSet>[] = [
  { title: "RULES", cell: ({ name }) => name },
  { title: "DESIRED", cell: ({ desiredCount }) => String(desiredCount) },
  { title: "ACTUAL", cell: ({ actualCount }) => String(actualCount) },
  { title: "READ", cell: ({ readAt }) => formatAge(readAt) },
  { title: "COMMITTED", cell: ({ committedAt }) => formatAge(committedAt) },
  { title: "REPAIRS", cell: ({ repairCount }) => String(repairCount) },
  { title: "DRIFT", cell: ({ drift: [first, ...others] }) => describeDrift(first, others.length) },
];

function describeDrift(first: string | undefined, otherCount: number): string {
  return first === undefined ? "" : `${first}${otherCount === 0 ? "" : `, ${otherCount} more`}`;
}

/** `kpng get backend`: asks a backend of this node. */
export const backendCommand: InspectCommand = {
  name: "backend",
  description: "what a backend of this node holds, how its last sync went, and whether its rules stand",
  options: outputOptions,
  examples: backendExamples,
  run: async (transport, _word, options) => {
    const output = readOutputOptions(options);
    const backend = await createClient(BackendInspectService, transport).getBackend({});
    printRows(backendTable, [backend], output);
    if (output.format !== "table" && output.format !== "wide") return;
    if (backend.ruleSets.length > 0) {
      output.write(`\n${formatTable(ruleSetColumns, backend.ruleSets, output.hasHeaders)}`);
    }
  },
};
