/** The machine's monotonic clock in milliseconds: the same in every process, unlike performance.now(). */
export function monotonicMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}
