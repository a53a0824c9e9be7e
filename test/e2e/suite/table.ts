import type { Outcome, TestResult } from "./report.ts";

/** Results of one proxy, a column of the table. */
export interface Column {
  readonly title: string;
  readonly results: readonly TestResult[];
}

/**
 * Returns the results of several proxies as a Markdown table, one row for each test, followed by the reasons for tests
 * that were not run, and the messages of those that failed.
 *
 * Tests that no proxy ran are counted by reason instead of listed.
 */
export function formatTable(columns: readonly Column[]): string {
  const names = [...new Set(columns.flatMap(({ results }) => results.map(({ name }) => name)))];
  const outcome = (column: Column, name: string): Outcome | undefined =>
    column.results.find((result) => result.name === name)?.outcome;
  const ran = names.filter((name) =>
    columns.some((column) => !["skipped", undefined].includes(outcome(column, name)?.kind)),
  );
  const header = ["Test", ...columns.map(({ title }) => title)];
  const rows = ran.map((name) => [escapeCell(name), ...columns.map((column) => wordOf(outcome(column, name)))]);
  const sums = ["**all**", ...columns.map(({ results }) => `**${summarize(results)}**`)];
  const lines = [header, header.map(() => "---"), ...rows, sums].map((cells) => `| ${cells.join(" | ")} |`);
  return [...lines, ...formatFailures(columns), ...formatSkipped(columns, names, ran), ""].join("\n");
}

/** Returns "84 passed, 1 failed, 12 skipped". */
export function summarize(results: readonly TestResult[]): string {
  const count = (kind: Outcome["kind"]): number => results.filter(({ outcome }) => outcome.kind === kind).length;
  return `${count("passed")} passed, ${count("failed")} failed, ${count("skipped")} skipped`;
}

function formatFailures(columns: readonly Column[]): readonly string[] {
  const lines = columns.flatMap(({ title, results }) =>
    results.flatMap(({ name, outcome }) =>
      outcome.kind === "failed" ? [`- ${title}: ${name}: ${outcome.message}`] : [],
    ),
  );
  return lines.length === 0 ? [] : ["", "Failed:", "", ...lines];
}

function formatSkipped(
  columns: readonly Column[],
  names: readonly string[],
  ran: readonly string[],
): readonly string[] {
  const namesByReason = Map.groupBy(
    names.filter((name) => !ran.includes(name)),
    (name) => {
      for (const { results } of columns) {
        const found = results.find((result) => result.name === name)?.outcome;
        if (found?.kind === "skipped") return found.reason;
      }
      return "unknown";
    },
  );
  if (namesByReason.size === 0) return [];
  const lines = [...namesByReason].map(([reason, { length }]) => `- ${length}: ${reason}`);
  return ["", "Not run by any proxy:", "", ...lines.toSorted()];
}

function wordOf(outcome: Outcome | undefined): string {
  if (outcome === undefined) return "–";
  return outcome.kind === "failed" ? "**failed**" : outcome.kind;
}

function escapeCell(text: string): string {
  return text.replaceAll("|", "\\|");
}
