import { ProcessError } from "../process-error.ts";

const names = ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"] as const;

/** Two kinds of fault: the exporter leaves such an entry out without a word, or it cannot be made at all. */
type EntryFault = { readonly isLeftOut: boolean; readonly text: string };

/**
 * Returns what is wrong in OpenTelemetry's variables for headers, each with its variable and the place of the entry, and
 * never with its text: headers are where keys and passwords are.
 *
 * Errors: BAD_OPTION for an entry with which the exporter cannot be made.
 *
 * Source: W3C Baggage without metadata, as the exporter reads it; names and values as gRPC allows them.
 */
export function checkTraceHeaders(environment: Readonly<Record<string, string | undefined>>): readonly string[] {
  const warnings: string[] = [];
  for (const name of names) {
    const entries = (environment[name]?.trim() ?? "").split(",");
    for (const [index, entry] of entries.entries()) {
      // As after a comma at the end.
      if (entry.trim() === "") continue;
      const fault = faultOf(entry);
      if (fault === undefined) continue;
      const told = `${name}: entry ${index + 1} of ${entries.length} ${fault.text}`;
      if (!fault.isLeftOut) throw new ProcessError("BAD_OPTION", told);
      warnings.push(`${told}, and is not sent`);
    }
  }
  return warnings;
}

function faultOf(entry: string): EntryFault | undefined {
  const [pair = ""] = entry.split(";");
  const at = pair.indexOf("=");
  const [key, value] = [pair.slice(0, Math.max(0, at)), pair.slice(at + 1)].map((text) => decode(text.trim()));
  if (key === undefined || value === undefined) return { isLeftOut: true, text: "has a % without two hex digits" };
  if (key === "" || value === "") return { isLeftOut: true, text: "is no name=value" };
  if (!/^[0-9a-z_.-]+$/i.test(key)) return { isLeftOut: false, text: "has a name that no header can have" };
  if (/-bin$/i.test(key)) return { isLeftOut: false, text: "is a binary header" };
  if (!/^[ -~]*$/.test(value)) return { isLeftOut: false, text: "has a value with letters that no header can have" };
  return undefined;
}

function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}
