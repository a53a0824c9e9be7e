/**
 * True if a list that would delete `deletedCount` of `currentCount` objects must be confirmed by a second list.
 * `ObjectCache` calls this function when a list is complete.
 *
 * Otherwise an API server that starts on an empty or restored etcd, or a proxy that answers in its place, would remove
 * every Service from every node within a second. Deletions reported by a watch are never held back.
 */
export function mustBrake(currentCount: number, deletedCount: number, options: BrakeOptions = {}): boolean {
  const { share = 0.9, minCount = 10 } = options;
  return deletedCount >= minCount && deletedCount >= share * currentCount;
}

/** When a list is held back. The brake is described in docs/glossary.md. */
export interface BrakeOptions {
  /** Share of the current objects, 0 to 1, from which their deletion must be confirmed. Default 0.9. */
  readonly share?: number | undefined;
  /** Fewer deletions than this are never held back. Default 10. */
  readonly minCount?: number | undefined;
}
