import { ProcessError } from "../process-error.ts";

const names = ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"] as const;

/** A fault in one entry: the exporter either silently skips the entry or cannot be created. */
type EntryFault = { readonly isSkipped: boolean; readonly text: string };

/**
 * Returns warnings about faults in OpenTelemetry's variables for headers. A warning names the variable and the position
 * of the entry, never its text: headers contain keys and passwords. `openTracing` logs them at start.
 *
 * Errors: BAD_OPTION for an entry with which the exporter cannot be created.
 *
 * Source: the exporter's format, W3C Baggage without metadata; gRPC's rules for names and values of metadata.
 *
 * Separate from `readTraceSettings`, which reads the variables that this project itself interprets.
 */
export function checkTraceHeaders(environment: Readonly<Record<string, string | undefined>>): readonly string[] {
  const warnings: string[] = [];
  for (const name of names) {
    const entries = (environment[name]?.trim() ?? "").split(",");
    for (const [index, entry] of entries.entries()) {
      // For example after a trailing comma.
      if (entry.trim() === "") continue;
      const fault = faultOf(entry);
      if (fault === undefined) continue;
      const problem = `${name}: entry ${index + 1} of ${entries.length} ${fault.text}`;
      if (!fault.isSkipped) throw new ProcessError("BAD_OPTION", problem);
      warnings.push(`${problem}; it is not sent`);
    }
  }
  return warnings;
}

function faultOf(entry: string): EntryFault | undefined {
  const [pair = ""] = entry.split(";");
  const at = pair.indexOf("=");
  const [key, value] = [pair.slice(0, Math.max(0, at)), pair.slice(at + 1)].map((text) => decode(text.trim()));
  if (key === undefined || value === undefined) return { isSkipped: true, text: "has a % without two hex digits" };
  if (key === "" || value === "") return { isSkipped: true, text: "is not name=value" };
  if (!/^[0-9a-z_.-]+$/i.test(key))
    return { isSkipped: false, text: "has a name with characters that a header cannot have" };
  if (/-bin$/i.test(key)) return { isSkipped: false, text: "is a binary header" };
  if (!/^[ -~]*$/.test(value))
    return { isSkipped: false, text: "has a value with characters that a header cannot have" };
  return undefined;
}

function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}
