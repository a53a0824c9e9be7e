import { createClient } from "@connectrpc/connect";
import {
  BackendInspectService,
  GetBackendResponseSchema,
  type RuleSet,
} from "@kpng/model/gen/kpng/inspect/v1/backend_pb.ts";
import { formatAge, formatDuration } from "../print/format.ts";
import { isTable, outputOptions, printRows, readOutputOptions, type TableSpec } from "../print/output.ts";
import { type Column, formatTable } from "../print/table.ts";
import type { InspectCommand } from "../query/inspect-command.ts";

/**
 * Examples in the help of `kpng get backend` (in this file) and `kpng get rules` (in `rules.ts`), which query a backend
 * and not a watcher.
 */
export const backendExamples = `
--api is the unix socket that the backend's option --inspect-socket names.

Examples:
  COMMAND --api unix:///run/kpng/iptables.sock
  COMMAND --api unix:///run/kpng/iptables.sock -o yaml
`;

const backendTable: TableSpec<typeof GetBackendResponseSchema> = {
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
    { title: "DURATION", cell: ({ lastSync }) => formatDuration(lastSync?.duration) },
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

/**
 * `kpng get backend`: prints the state of a backend of this node. `makeInspect` adds it. Separate from `rules.ts`,
 * which prints the rules of the backend. The other commands of this folder ask a watcher.
 */
export const backendCommand: InspectCommand = {
  name: "backend",
  description: "a backend of this node: its view, its last sync, and the state of its rules",
  options: outputOptions,
  examples: backendExamples,
  run: async (transport, _words, options) => {
    const output = await readOutputOptions(options);
    const backend = await createClient(BackendInspectService, transport).getBackend({});
    printRows(backendTable, [backend], output);
    if (isTable(output) && backend.ruleSets.length > 0) {
      output.write(`\n${formatTable(ruleSetColumns, backend.ruleSets, output.hasHeaders)}`);
    }
  },
};
