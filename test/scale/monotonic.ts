/** Time of the machine's monotonic clock in milliseconds. Equal in all processes, unlike performance.now(). */
export function monotonicMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}
