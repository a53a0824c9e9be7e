import { createClient } from "@connectrpc/connect";
import {
  BackendInspectService,
  GetBackendResponseSchema,
  RuleLinesSchema,
  type RuleSet,
} from "@kpng/model/gen/kpng/inspect/v1/backend_pb.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { isTable, outputOptions, printMessages, printRows, readOutputOptions } from "./print/output.ts";
import type { TableSpec } from "./print/table.ts";
import { type Column, formatTable } from "./print/table.ts";
import { formatAge, formatDuration, oneLine } from "./print/text.ts";
import type { InspectCommand } from "./query/client.ts";
import { parseFilter, parseServiceKey } from "./query/filters.ts";

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

/** `kpng get backend`: prints the state of a backend of this node. The other commands of this folder ask a watcher. */
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

/** `kpng get rules`: prints the rules that a backend wants, one per line. */
export const rulesCommand: InspectCommand = {
  name: "rules",
  description: "rules that a backend of this node wants; with -o json, also those in the kernel",
  argument: "[rule-set]",
  parseArgument: parseFilter,
  options: [
    {
      flags: "--service <namespace/name>",
      description: "print only the rules that serve this Service",
      default: "",
      parse: parseServiceKey,
    },
    ...outputOptions,
  ],
  examples: backendExamples,
  run: async (transport, [ruleSet = ""], options) => {
    const output = await readOutputOptions(options);
    const { ruleSets } = await createClient(BackendInspectService, transport).listRules({
      ruleSet,
      service: String(options.service ?? ""),
    });
    if (ruleSets.length === 0 && ruleSet !== "") {
      throw new ProcessError("REQUEST_FAILED", `rule set "${ruleSet}" not found; omit the name to print all`);
    }
    if (!isTable(output)) return printMessages(RuleLinesSchema, ruleSets, output);
    for (const { name, desired } of ruleSets) {
      if (output.hasHeaders) output.write(`# ${name}\n`);
      for (const line of desired) output.write(`${oneLine(line)}\n`);
    }
  },
};
