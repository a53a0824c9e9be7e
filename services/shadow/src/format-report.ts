import type { FormatObject } from "@kpng/backend-kit/proxy/object-format.ts";
import { addressAndPort } from "@kpng/model/address.ts";
import type { Comparison } from "./compare-packets.ts";
import type { Difference } from "./difference.ts";
import type { SettledChange } from "./settled-differences.ts";

/** The format of a report; undefined for a table. */
export type ReportFormat = FormatObject | undefined;

/** The extent of the last comparison, of both families. */
type Compared = Pick<Comparison, "packets" | "services">;

interface Summary {
  /** Number of comparisons. */
  readonly looks: number;
  /** Number of distinct differences that were reported. */
  readonly told: number;
  readonly present: readonly Difference[];
  readonly elapsedMs: number;
}

const maxRows = 30;

/** Maximum number of outcomes of one packet in a row; further ones are only counted. */
const maxOutcomes = 4;

/**
 * Formats a change of the differences: a block with a table, or one object. `shadowTask` prints the result. Separate
 * from it, because formatting is pure.
 */
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

/** Formats the summary that `shadowTask` prints at its end. */
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
  return [
    sign,
    servicePort === "" ? "?" : servicePort,
    `${addressKind} ${addressAndPort(address, port)}/${protocol}`,
    `${sender} ${source}`,
    side(kubeProxy, kpng),
    side(kpng, kubeProxy),
  ];
}

/** Formats the outcomes of one side. Outcomes that the other side does not have come first. */
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
