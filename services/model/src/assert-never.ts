/** Ends a switch over a closed union: the compiler refuses the call if a case is missing. */
export function assertNever(value: never): never {
  throw new Error(`unexpected case ${JSON.stringify(value)}`);
}
