import { readFileSync } from "node:fs";
import { ProcessError } from "@kpng/process/process-error.ts";
import { NotApplicable, Play, type ProtocolCase, type ProtocolSettings } from "./protocol-cases.ts";

/** Result of one case. */
export interface CaseResult {
  readonly id: string;
  readonly rule: string;
  readonly kind: "passed" | "failed" | "not-applicable" | "excepted";
  /** Why the case failed or does not apply, or the reason of the exception; "" if it passed. */
  readonly reason: string;
  readonly elapsedMs: number;
}

/** Runs one case with a backend of its own. The case fails as soon as `interrupted` resolves. */
export async function runCase(
  one: ProtocolCase,
  settings: ProtocolSettings,
  interrupted: Promise<void>,
): Promise<CaseResult> {
  const startMs = performance.now();
  const end = (kind: CaseResult["kind"], reason = ""): CaseResult => {
    return { id: one.id, rule: one.rule, kind, reason, elapsedMs: performance.now() - startMs };
  };
  await using play = await Play.start(settings, one.isSlow);
  try {
    const running = one.run(play);
    // After an interruption, nobody waits for the case, and it fails when its backend is gone.
    running.catch(() => undefined);
    await Promise.race([running, interrupted.then(() => Promise.reject(new Error("interrupted")))]);
    return end("passed");
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    if (error instanceof NotApplicable) return end("not-applicable", text);
    const { ended, errors } = play.backend;
    const exit = ended === undefined || text.includes(ended) ? "" : ` (the backend has ended: ${ended})`;
    const said = errors.trimEnd().split("\n").slice(-5).join("\n");
    return end("failed", `${text}${exit}${said === "" ? "" : `\nThe backend said last:\n${said}`}`);
  }
}

/** Cases that may fail, each with a reason. */
export type Exceptions = ReadonlyMap<string, string>;

/**
 * Reads a file of exceptions: one case per line, with the reason after the first space; a line that begins with `#` is
 * a comment. Errors: BAD_OPTION for a case that does not exist, or a line without a reason.
 */
export function readExceptions(path: string, cases: readonly ProtocolCase[]): Exceptions {
  const lines = readText(path)
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "" && !line.startsWith("#"));
  return new Map(
    lines.map((line) => {
      const [, id = "", reason = ""] = /^(\S+)\s*(.*)$/.exec(line) ?? [];
      if (!cases.some((one) => one.id === id))
        throw new ProcessError("BAD_OPTION", `${path}: there is no case "${id}"`);
      if (reason === "") throw new ProcessError("BAD_OPTION", `${path}: the exception ${id} has no reason`);
      return [id, reason];
    }),
  );
}

function readText(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (cause) {
    throw new ProcessError("BAD_OPTION", `--exceptions ${path} cannot be read`, { cause });
  }
}

/** Applies an exception: an expected failure counts as excepted, and an exception that is not needed as a failure. */
export function withException(result: CaseResult, exceptions: Exceptions): CaseResult {
  const reason = exceptions.get(result.id);
  if (reason === undefined || result.kind === "not-applicable") return result;
  if (result.kind === "failed") return { ...result, kind: "excepted", reason };
  return { ...result, kind: "failed", reason: `passes, so the exception is not needed any more: ${reason}` };
}

/** Formats results as a JUnit report. */
export function formatJUnit(results: readonly CaseResult[]): string {
  const escaped = (text: string): string =>
    text.replaceAll(/[<>&"\p{Cc}]/gu, (letter) => (letter === "\n" ? "&#10;" : `&#${letter.charCodeAt(0)};`));
  const failed = results.filter(({ kind }) => kind === "failed").length;
  const skipped = results.filter(({ kind }) => kind === "not-applicable" || kind === "excepted").length;
  const cases = results.map(({ id, rule, kind, reason, elapsedMs }) => {
    const open = `  <testcase classname="protocol" name="${escaped(`${id} ${rule}`)}" time="${(elapsedMs / 1_000).toFixed(3)}"`;
    if (kind === "passed") return `${open}/>`;
    const tag = kind === "failed" ? "failure" : "skipped";
    return `${open}><${tag} message="${escaped(reason)}"/></testcase>`;
  });
  const counts = `tests="${results.length}" failures="${failed}" skipped="${skipped}"`;
  return `<?xml version="1.0"?>\n<testsuite name="kpng conformance protocol" ${counts}>\n${cases.join("\n")}\n</testsuite>\n`;
}
