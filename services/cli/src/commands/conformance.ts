import {
  addOptions,
  type OptionSpec,
  oneOf,
  parseNonEmptyText,
  parsePositiveDurationMs,
} from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { aborted } from "@kpng/process/wait.ts";
import { Command } from "commander";
import { protocolCases } from "../conformance/protocol-cases.ts";
import { type CaseResult, formatJUnit, readExceptions, runCase, withException } from "../conformance/run-cases.ts";
import type { Report } from "../conformance/tested-backend.ts";
import type { Options } from "../context/command-context.ts";

const protocolOptions: readonly OptionSpec[] = [
  {
    flags: "--report <how>",
    description:
      'how the backend says what it has applied: acks (revisions only), or stdout, with a line {"services": {"default/web": ["10.1.0.1"]}} (sorted addresses of endpoints) after each state',
    default: "acks",
    parse: oneOf("--report", ["acks", "stdout"]),
  },
  {
    flags: "--applied <command>",
    description: "shell command that prints such a line for the state that is applied now, instead of --report",
    parse: parseNonEmptyText,
  },
  {
    flags: "--only <cases>",
    description: "run only these cases, separated by commas, e.g. C3,C4b; C3 means all of that rule",
    parse: parseNonEmptyText,
  },
  {
    flags: "--exceptions <file>",
    description: "cases that may fail: one per line, with the reason; an exception that is not needed fails",
    parse: parseNonEmptyText,
  },
  {
    flags: "--timeout <duration>",
    description: "time within which the backend must react",
    default: 10_000,
    parse: parsePositiveDurationMs,
  },
  {
    flags: "-o, --output <format>",
    description: "table, json (one object per case and line) or junit",
    default: "table",
    parse: oneOf("--output", ["table", "json", "junit"]),
  },
];

const examples = `
In the command, {api} stands for the watcher's address and {node} for the node's name. Both are also in the environment, as
KPNG_API and KPNG_NODE_NAME.

Examples:
  # revisions only, from the backend's acknowledgements
  kpng conformance protocol -- kpng-json --api {api} --node-name {node}

  # the state, from lines that the backend prints
  kpng conformance protocol --report stdout -- python3 mine.py {api} {node}

The backend must be the process that the command starts (begin a wrapper with exec): only it gets SIGTERM. What it has
installed stays, so run one that makes rules in a network namespace or a container (unshare -n).

Exit code 1 if a case fails, or after an interruption. docs/protocol.md has the rules.
`;

/** `kpng conformance protocol`: plays a watcher against a backend in any language, and judges what the backend does. */
export function makeConformance(signal: AbortSignal): Command {
  const protocol = addOptions(new Command("protocol"), protocolOptions)
    .description("play a watcher against a backend, and check that it keeps the rules of the protocol")
    .argument("<backend...>", "command that starts the backend, after --")
    .addHelpText("after", examples)
    .action((command: string[], options: Options) => run(command, options, signal));
  return new Command("conformance").addCommand(protocol);
}

async function run(command: readonly string[], options: Options, signal: AbortSignal): Promise<void> {
  const { output } = options;
  const applied = typeof options.applied === "string" ? options.applied : undefined;
  const kind = options.report === "stdout" ? "stdout" : "acks";
  const report: Report = applied === undefined ? { kind } : { kind: "command", command: applied };
  const path = typeof options.exceptions === "string" ? options.exceptions : undefined;
  const exceptions = path === undefined ? new Map<string, string>() : readExceptions(path, protocolCases);
  const only = typeof options.only === "string" ? options.only.split(",").map((one) => one.trim()) : undefined;
  const isMeant = (id: string, one: string): boolean => id === one || id.replace(/[a-z]$/, "") === one;
  const unknown = only?.find((one) => !protocolCases.some(({ id }) => isMeant(id, one)));
  if (unknown !== undefined) throw new ProcessError("BAD_OPTION", `--only: there is no case "${unknown}"`);
  const cases = protocolCases.filter(({ id }) => only?.some((one) => isMeant(id, one)) ?? true);
  const settings = { command, report, limitMs: Number(options.timeout) };
  const results: CaseResult[] = [];
  const interrupted = aborted(signal);
  // The Connect library reports each broken stream there, and the cases break many.
  console.error = () => undefined;
  for (const one of cases) {
    const outcome = await runCase(one, settings, interrupted);
    if (signal.aborted) break;
    const result = withException(outcome, exceptions);
    results.push(result);
    if (output === "table") process.stdout.write(formatLine(result));
    if (output === "json") process.stdout.write(`${JSON.stringify(result)}\n`);
  }
  if (output === "junit") process.stdout.write(formatJUnit(results));
  const count = (wanted: CaseResult["kind"]): number => results.filter((result) => result.kind === wanted).length;
  const more = `${count("not-applicable")} not applicable, ${count("excepted")} excepted`;
  if (output === "table") process.stdout.write(`\n${count("passed")} passed, ${count("failed")} failed, ${more}\n`);
  if (signal.aborted) process.stderr.write(`interrupted after ${results.length} of ${cases.length} cases\n`);
  if (count("failed") > 0 || signal.aborted) process.exitCode = 1;
}

const words: Readonly<Record<CaseResult["kind"], string>> = {
  passed: "ok      ",
  failed: "FAILED  ",
  excepted: "excepted",
  "not-applicable": "-       ",
};

function formatLine({ id, rule, kind, reason }: CaseResult): string {
  const indented = reason === "" ? "" : `\n${reason.replaceAll(/^/gm, "               ")}`;
  return `${words[kind]} ${id.padEnd(5)} ${rule}${indented}\n`;
}
