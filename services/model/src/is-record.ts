/**
 * True for an object that is neither null nor an array, such as a mapping in parsed JSON or YAML. Parsers in the
 * watcher, backend-kit and `kpng` share it, and call it before they read fields of unknown input.
 */
export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
