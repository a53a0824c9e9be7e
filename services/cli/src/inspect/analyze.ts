import { InvalidArgumentError } from "commander";
import { type Finding, findFindings, readWatcherState } from "./find-findings.ts";
import { formatTable } from "./print/table.ts";
import { formatCount, oneLine, terminalJson } from "./print/text.ts";
import { type InspectCommand, inspectClient } from "./query/client.ts";
import { allNamespacesOption, namespaceOption, splitName } from "./query/filters.ts";

/** `kpng analyze`: prints what is probably wrong with a cluster and its nodes, and what to do about it. */
export function makeAnalyze(hasNodes: boolean): InspectCommand {
  return {
    name: "analyze",
    description: "what is probably wrong, and what to do about it",
    options: [
      namespaceOption,
      allNamespacesOption,
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
      const all = findFindings(await readWatcherState(inspectClient(transport)), { hasNodes });
      const findings = all.filter(({ subject }) => namespace === "" || subject.startsWith(`service/${namespace}/`));
      if (options.output === "json") {
        process.stdout.write(`${terminalJson(JSON.stringify(findings, undefined, 2))}\n`);
      } else process.stdout.write(formatFindings(findings));
      if (findings.some(({ severity }) => severity === "error")) process.exitCode = 1;
    },
  };
}

/** Formats findings as two lines each: the finding, and the remedy below it. Ends with their number. */
export function formatFindings(findings: readonly Finding[]): string {
  if (findings.length === 0) return "No findings.\n";
  const table = formatTable(
    [
      { title: "", cell: ({ severity }: Finding) => severity },
      { title: "", cell: ({ subject }) => subject },
      { title: "", cell: ({ text }) => text },
    ],
    findings,
    false,
  );
  const lines = table.trimEnd().split("\n");
  const body = lines.map((line, index) => `${line}\n          → ${oneLine(findings[index]?.remedy ?? "")}\n`).join("");
  const errors = findings.filter(({ severity }) => severity === "error").length;
  return `${body}\n${formatCount(errors, "error")}, ${formatCount(findings.length - errors, "warning")}\n`;
}
