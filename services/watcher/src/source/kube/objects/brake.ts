export interface BrakeOptions {
  /** Share of what is held that a list may take away without being asked again. Default 0.9. */
  readonly share?: number | undefined;
  /** Fewer deletions than this never brake. Default 10. */
  readonly minCount?: number | undefined;
}

/**
 * True if a list that would delete `deletedCount` of `heldCount` objects must be confirmed by a second one.
 *
 * An API server that starts on an empty or restored etcd, or a proxy that answers in its place, would otherwise take
 * every Service off every node within a second. Deletions that a watch reports one by one are never held up.
 */
export function mustBrake(heldCount: number, deletedCount: number, options: BrakeOptions = {}): boolean {
  const { share = 0.9, minCount = 10 } = options;
  return deletedCount >= minCount && deletedCount >= share * heldCount;
}
