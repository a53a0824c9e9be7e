/** True for an object that is neither null nor an array: what a mapping of parsed JSON or YAML is. */
export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
