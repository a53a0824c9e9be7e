/**
 * Applies the brake to one complete list of a kind: returns which objects that the list lacks are kept for now.
 *
 * An API server on an empty or restored etcd, or another watcher that lost its source, lists nearly nothing. Applied at
 * once, such a list would remove every Service from every node within a second. Only deletions are held: additions and
 * updates of the list, and deletions that a watch reports, apply at once.
 *
 * Transitions of the result, by what the list lacks:
 *
 * - nothing held, few objects: none held; they are deleted.
 * - nothing held, nearly all objects: held.
 * - held objects, and the list confirms, or the hold is older than `holdMs`: released; they are deleted.
 * - held objects, otherwise: still held, with the age of the first list.
 *
 * A held object that the list contains again is not held any more. Pure; O(objects).
 *
 * The watcher calls it for lists of its source (`ListBrake`), and a backend for the first view of another watcher
 * (`ViewBrake`). Both share this rule and keep the held objects themselves.
 *
 * Separate from both, so that the rule is pure and the same in both.
 */
export function brakeList(
  list: ListedKeys,
  held: HeldDeletions | undefined,
  options: BrakeOptions,
): HeldDeletions | undefined {
  if (options.holdMs === 0) return undefined;
  const ageMs = held === undefined ? 0 : list.nowMs - held.sinceMs;
  const isReleased = ageMs >= options.holdMs || (list.isConfirming && ageMs >= (options.confirmAfterMs ?? 30_000));
  const kept = new Set<string>();
  const missing: string[] = [];
  let currentCount = 0;
  for (const key of list.currentKeys) {
    currentCount += 1;
    if (list.has(key)) continue;
    if (held?.keys.has(key) !== true) missing.push(key);
    else if (!isReleased) kept.add(key);
  }
  const keys = isSuspicious(currentCount, missing.length, options) ? new Set([...kept, ...missing]) : kept;
  if (keys.size === 0) return undefined;
  const isOld = held !== undefined && kept.size > 0;
  return { keys, currentCount: isOld ? held.currentCount : currentCount, sinceMs: isOld ? held.sinceMs : list.nowMs };
}

/**
 * True if the deletions of a list that lacks `deletedCount` of `currentCount` objects are held instead of applied at
 * once. {@link brakeList} calls it, and `ListBrake` first, to skip the comparison of all keys for most lists.
 */
export function isSuspicious(
  currentCount: number,
  deletedCount: number,
  { share = 0.9, minCount = 10 }: Pick<BrakeOptions, "share" | "minCount">,
): boolean {
  return deletedCount >= minCount && deletedCount >= share * currentCount;
}

/** When deletions of a list are held, and for how long. The brake is described in docs/glossary.md. */
export interface BrakeOptions {
  /** Longest time that deletions are held, in milliseconds; then the newest complete list applies. 0: never held. */
  readonly holdMs: number;
  /**
   * Age from which a confirming list releases held deletions, in milliseconds. Default 30 000. An earlier list would
   * come from the same server in the same condition.
   */
  readonly confirmAfterMs?: number | undefined;
  /** Share of the current objects, 0 to 1, from which their deletion is held. Default 0.9. */
  readonly share?: number | undefined;
  /** Fewer deletions than this are never held. Default 10. */
  readonly minCount?: number | undefined;
}

/** Objects of one kind that a complete list lacked, and that are kept until their deletion is confirmed. */
export interface HeldDeletions {
  readonly keys: ReadonlySet<string>;
  /** Number of objects before the first list that lacked them. */
  readonly currentCount: number;
  /** When they were first held, in milliseconds; by the clock of {@link ListedKeys.nowMs}. */
  readonly sinceMs: number;
}

/** A complete list of one kind, compared with the current objects. */
export interface ListedKeys {
  readonly currentKeys: Iterable<string>;
  /** True if the list contains the object. */
  has(key: string): boolean;
  /** True if the list confirms an earlier one: a quorum read of an API server, the first batch of a new stream. */
  readonly isConfirming: boolean;
  readonly nowMs: number;
}
