/** Ends a switch over a closed union: the call does not compile if a case is missing. */
export function assertNever(value: never): never {
  throw new Error(`unexpected case ${JSON.stringify(value)}`);
}

/** True for an object that is neither null nor an array, such as a mapping in parsed JSON or YAML. */
export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
