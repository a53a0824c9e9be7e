/** Ends a switch over a closed union: the call does not compile if a case is missing. */
export function assertNever(value: never): never {
  throw new Error(`unexpected case ${JSON.stringify(value)}`);
}
