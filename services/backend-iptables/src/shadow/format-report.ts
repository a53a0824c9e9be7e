import type { FormatObject } from "../object-format.ts";
import type { Comparison } from "./compare-rules.ts";
import type { Difference } from "./difference.ts";
import type { SettledChange } from "./settled-differences.ts";

/** How a report is written: undefined for a table. */
export type ReportFormat = FormatObject | undefined;

/** What the last look compared, of both families. */
export type Compared = Pick<Comparison, "packets" | "services">;

/** What a run has to say at its end. */
export interface Summary {
  readonly looks: number;
  /** How many different differences were told in all. */
  readonly told: number;
  readonly present: readonly Difference[];
  readonly elapsedMs: number;
}

/** More rows than these tell a person nothing more. */
const maxRows = 30;

/** More outcomes of one packet than these are counted. */
const maxOutcomes = 4;

/** Writes a change of the differences: a block with a table, or one object. */
export function formatChange(format: ReportFormat, time: Date, change: SettledChange, compared: Compared): string {
  const { appeared, gone, present } = change;
  const { packets, services } = compared;
  if (format !== undefined) {
    return format({ time: time.toISOString(), differences: present.length, packets, services, appeared, gone });
  }
  const of = `${count(packets, "packet")} of ${count(services, "Service")} compared`;
  const head = `${time.toISOString()}  ${present.length === 0 ? `no difference: ${of}` : `${describe(present)}; ${of}`}`;
  const rows = [...appeared.map((each) => row("+", each)), ...gone.map((each) => row("-", each))];
  return `${[head, ...table(rows)].join("\n")}\n`;
}

export function formatSummary(format: ReportFormat, time: Date, summary: Summary): string {
  const { looks, told, present, elapsedMs } = summary;
  const elapsedSeconds = Math.round(elapsedMs / 1_000);
  if (format !== undefined) {
    const fields = { looks, told, differences: present.length, elapsedSeconds, present };
    return format({ time: time.toISOString(), summary: fields });
  }
  const head = `${time.toISOString()}  end after ${count(looks, "look")} in ${elapsedSeconds} s: `;
  const now = present.length === 0 ? "no difference now" : `${describe(present)} now`;
  return `${[`${head}${now}, ${told} told in all`, ...table(present.map((each) => row(" ", each)))].join("\n")}\n`;
}

function describe(differences: readonly Difference[]): string {
  const services = new Set(differences.map(({ servicePort }) => servicePort));
  return `${count(differences.length, "packet")} of ${count(services.size, "service port")} go${differences.length === 1 ? "es" : ""} another way`;
}

function count(number: number, word: string): string {
  return `${number} ${word}${number === 1 ? "" : "s"}`;
}

type Row = readonly string[];

function row(sign: string, difference: Difference): Row {
  const { servicePort, addressKind, address, port, protocol, sender, source, kubeProxy, kpng } = difference;
  const host = address.includes(":") ? `[${address}]` : address;
  return [
    sign,
    servicePort === "" ? "?" : servicePort,
    `${addressKind} ${host}:${port}/${protocol}`,
    `${sender} ${source}`,
    side(kubeProxy, kpng),
    side(kpng, kubeProxy),
  ];
}

/** What the other side does not have comes first. */
function side(outcomes: readonly string[], others: readonly string[]): string {
  const sorted = [
    ...outcomes.filter((each) => !others.includes(each)),
    ...outcomes.filter((each) => others.includes(each)),
  ];
  const more = sorted.length - maxOutcomes;
  return `${sorted.slice(0, maxOutcomes).join(", ")}${more > 0 ? `, ${more} more` : ""}`;
}

function table(rows: readonly Row[]): readonly string[] {
  if (rows.length === 0) return [];
  const shown: readonly Row[] = [["", "SERVICE PORT", "TO", "FROM", "KUBE-PROXY", "KPNG"], ...rows.slice(0, maxRows)];
  const widths = shown[0]?.map((_, at) => Math.max(...shown.map((cells) => cells[at]?.length ?? 0))) ?? [];
  const lines = shown.map((cells) =>
    cells
      .map((cell, at) => cell.padEnd(widths[at] ?? 0))
      .join("  ")
      .trimEnd(),
  );
  const more = rows.length - maxRows;
  return more > 0 ? [...lines, `… and ${count(more, "row")} more; --output json has them all`] : lines;
}
