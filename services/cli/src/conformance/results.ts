import { readFileSync } from "node:fs";
import { type Exceptions, parseExceptions } from "@kpng/laboratory/scenario/deviations.ts";
import { type OptionSpec, oneOf, textOption } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import type { Options } from "../context/command-context.ts";

/** Result of one case. */
export interface CaseResult {
  readonly id: string;
  readonly rule: string;
  readonly kind: "passed" | "failed" | "not-applicable" | "excepted";
  /** Why the case failed or does not apply, or the reason of the exception; "" if it passed. */
  readonly reason: string;
  readonly elapsedMs: number;
}

/** Options of both commands: exceptions, and the form of the results. */
export const resultOptions: readonly OptionSpec[] = [
  textOption(
    "--exceptions <file>",
    "what the backend does differently: one name per line, with the reason; one that is never used fails",
  ),
  {
    flags: "-o, --output <format>",
    description: "table, json (one object per case and line) or junit",
    default: "table",
    parse: oneOf(["table", "json", "junit"]),
  },
];

/** Reads the file of `--exceptions`; none if there is no such option. Errors: BAD_OPTION. */
export function readExceptions(options: Options, isKnown: (name: string) => boolean): Exceptions {
  const path = options.exceptions;
  if (typeof path !== "string") return new Map();
  try {
    return parseExceptions(readFileSync(path, "utf8"), isKnown);
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new ProcessError("BAD_OPTION", `--exceptions ${path}: ${reason}`, { cause });
  }
}

/** Applies an exception: an expected failure counts as excepted, and an exception that is not needed as a failure. */
export function withException(result: CaseResult, exceptions: Exceptions): CaseResult {
  const reason = exceptions.get(result.id);
  if (reason === undefined || result.kind === "not-applicable") return result;
  if (result.kind === "failed") return { ...result, kind: "excepted", reason };
  return { ...result, kind: "failed", reason: `passes, so the exception is not needed any more: ${reason}` };
}

/** The results of a run, which are printed as they come. */
export class Results {
  readonly #suite: string;
  readonly #output: unknown;
  readonly #results: CaseResult[] = [];

  /** `suite` is the name of the JUnit report. */
  constructor(suite: string, { output }: Options) {
    this.#suite = suite;
    this.#output = output;
  }

  add(result: CaseResult): void {
    this.#results.push(result);
    if (this.#output === "table") process.stdout.write(formatLine(result));
    if (this.#output === "json") process.stdout.write(`${JSON.stringify(result)}\n`);
  }

  /** Number of cases that have ended. */
  get count(): number {
    return this.#results.length;
  }

  /** Prints the end of the report, and sets the exit status: 1 if a case failed, or if not all were run. */
  finish(expectedCount: number): void {
    if (this.count < expectedCount) {
      const reason = `ended after ${this.count} of ${expectedCount} cases`;
      this.add({ id: "run", rule: "all cases are run", kind: "failed", reason, elapsedMs: 0 });
    }
    const count = (wanted: CaseResult["kind"]): number => this.#results.filter(({ kind }) => kind === wanted).length;
    const counts = `${count("passed")} passed, ${count("failed")} failed`;
    const more = `${count("not-applicable")} not applicable, ${count("excepted")} excepted`;
    if (this.#output === "table") process.stdout.write(`\n${counts}, ${more}\n`);
    if (this.#output === "junit") process.stdout.write(formatJUnit(this.#suite, this.#results));
    if (count("failed") > 0) process.exitCode = 1;
  }
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

/** Formats results as a JUnit report. */
export function formatJUnit(suite: string, results: readonly CaseResult[]): string {
  const escaped = (text: string): string =>
    text
      // XML has no other control characters.
      .replaceAll(/(?![\t\n\r])\p{Cc}/gu, "\uFFFD")
      .replaceAll(/[<>&"\t\n\r]/g, (letter) => `&#${letter.charCodeAt(0)};`);
  const failed = results.filter(({ kind }) => kind === "failed").length;
  const skipped = results.filter(({ kind }) => kind === "not-applicable" || kind === "excepted").length;
  const cases = results.map(({ id, rule, kind, reason, elapsedMs }) => {
    const open = `  <testcase classname="${suite}" name="${escaped(`${id} ${rule}`)}" time="${(elapsedMs / 1_000).toFixed(3)}"`;
    if (kind === "passed") return `${open}/>`;
    const tag = kind === "failed" ? "failure" : "skipped";
    return `${open}><${tag} message="${escaped(reason)}"/></testcase>`;
  });
  const counts = `tests="${results.length}" failures="${failed}" skipped="${skipped}"`;
  return `<?xml version="1.0"?>\n<testsuite name="kpng conformance ${suite}" ${counts}>\n${cases.join("\n")}\n</testsuite>\n`;
}
