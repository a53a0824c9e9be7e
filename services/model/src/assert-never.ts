/**
 * Ends a switch over a closed union: the call does not compile if a case is missing. Watcher and backend-kit share it,
 * and call it in the last case of such a switch.
 */
export function assertNever(value: never): never {
  throw new Error(`unexpected case ${JSON.stringify(value)}`);
}
