import { type Finding, FindingSchema, FindingSeverity } from "@kpng/model/gen/kpng/inspect/v1/finding_pb.ts";
import type { ListFindingsResponse } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { InvalidArgumentError } from "commander";
import { type InspectCommand, inspectClient } from "./client.ts";
import { namespaceOptions, splitName } from "./list.ts";
import { plainMessage } from "./print/output.ts";
import { formatCount, formatTable, oneLine, terminalText } from "./print/text.ts";

/** `kpng analyze`: prints what is probably wrong with a cluster and its nodes, and what to do about it. */
export const analyzeCommand: InspectCommand = {
  name: "analyze",
  description: "what is probably wrong, and what to do about it",
  options: [
    ...namespaceOptions,
    {
      flags: "-o, --output <format>",
      description: "text or json",
      default: "text",
      env: "KPNG_ANALYZE_OUTPUT",
      parse: (text) => {
        if (text === "text" || text === "json") return text;
        throw new InvalidArgumentError("expected text or json");
      },
    },
  ],
  examples: `
The exit code is 1 if there is a finding of severity error, and 0 otherwise.

Examples:
  COMMAND
  COMMAND -n shop
  COMMAND -o json | jq '.[] | select(.severity == "error")'
`,
  run: async (transport, _words, options) => {
    const { namespace } = splitName(undefined, options);
    const response = await inspectClient(transport).listFindings({ namespace });
    if (options.output === "json") {
      const rows = response.findings.map((finding) => plainMessage(FindingSchema, finding));
      process.stdout.write(terminalText(`${JSON.stringify(rows, undefined, 2)}\n`));
    } else process.stdout.write(formatFindings(response));
    if (response.errorCount > 0) process.exitCode = 1;
  },
};

/** Returns the word of a severity: "error" or "warning". */
export function severityOf({ severity }: Finding): string {
  return severity === FindingSeverity.ERROR ? "error" : "warning";
}

/** *Shape:* `1 error, 2 warnings`. */
export function countFindings({ errorCount, warningCount }: ListFindingsResponse): string {
  return `${formatCount(errorCount, "error")}, ${formatCount(warningCount, "warning")}`;
}

/** Formats findings as two lines each: the finding, and the remedy below it. Ends with their number. */
function formatFindings(response: ListFindingsResponse): string {
  const { findings, errorCount, warningCount } = response;
  if (findings.length === 0) return "No findings.\n";
  const table = formatTable(
    [
      { title: "", cell: severityOf },
      { title: "", cell: ({ subject }: Finding) => subject },
      { title: "", cell: ({ text }) => text },
    ],
    findings,
    false,
  );
  const lines = table.trimEnd().split("\n");
  const body = lines.map((line, index) => `${line}\n          → ${oneLine(findings[index]?.remedy ?? "")}\n`).join("");
  const more = errorCount + warningCount - findings.length;
  return `${body}${more === 0 ? "" : `… and ${more} more\n`}\n${countFindings(response)}\n`;
}
