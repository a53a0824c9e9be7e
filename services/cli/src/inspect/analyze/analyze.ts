import { InvalidArgumentError } from "commander";
import { colorOption, type Paint, paintOf } from "../print/color.ts";
import { formatCount } from "../print/format.ts";
import { formatTable } from "../print/table.ts";
import { oneLine, terminalJson } from "../print/terminal-text.ts";
import { allNamespacesOption, namespaceOption, splitName } from "../query/filter-options.ts";
import { inspectClient } from "../query/inspect-client.ts";
import type { InspectCommand } from "../query/inspect-command.ts";
import { type Finding, findFindings } from "./find-findings.ts";
import { readWatcherState } from "./read-state.ts";

/**
 * `kpng analyze`: prints what is probably wrong with a cluster and its nodes, and what to do about it. `makeInspect`
 * adds it for a watcher, `makeInspectSource` for files and clusters. Separate from `findFindings`, which decides what
 * is wrong: this file asks and prints.
 */
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
      colorOption,
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
      } else process.stdout.write(formatFindings(findings, paintOf(options.color)));
      if (findings.some(({ severity }) => severity === "error")) process.exitCode = 1;
    },
  };
}

/** Formats findings as two lines each: the finding, and the remedy below it. Ends with their number. */
export function formatFindings(findings: readonly Finding[], paint?: Paint): string {
  if (findings.length === 0) return "No findings.\n";
  const table = formatTable(
    [
      { title: "", cell: ({ severity }: Finding) => severity, style: ({ severity }) => styles[severity] },
      { title: "", cell: ({ subject }) => subject },
      { title: "", cell: ({ text }) => text },
    ],
    findings,
    false,
    [],
    paint,
  );
  const lines = table.trimEnd().split("\n");
  const body = lines.map((line, index) => `${line}\n          → ${oneLine(findings[index]?.remedy ?? "")}\n`).join("");
  const errors = findings.filter(({ severity }) => severity === "error").length;
  return `${body}\n${formatCount(errors, "error")}, ${formatCount(findings.length - errors, "warning")}\n`;
}

const styles = { error: "bad", warning: "doubtful" } as const;
