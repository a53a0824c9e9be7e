/**
 * How new a state of the cluster is. A watcher attaches it to every state that it sends, and a node or relay compares
 * it with that of the state that it holds (`judgeOffer`), so that it never goes back. docs/design/never-backwards.md
 * describes the whole.
 *
 * Each kind has two versions, because a replica does not know when a kind changed, only when it saw it: `services` is a
 * version at which the state was that of the source, and `current.services` is the highest one. A state whose
 * `current` version has reached the version of another one is not older than it:
 *
 * ```text
 * Services change at 100, and not again
 * A listed them at 90, saw the event at 100, and a bookmark at 180:   services 100, current 180
 * B listed them at 150:                                                services 150, current 150
 * A → B: 150 ≥ 100, not older.  B → A: 180 ≥ 150, not older.  Before the bookmark, B → A would be in doubt.
 * ```
 */
export interface Position {
  /**
   * Counter of the versions: "kube:" and the UID of the namespace kube-system for an API server, "kube" if the watcher
   * may not read the UID, or the instance of the watcher for files and recordings.
   */
  readonly source: string;
  /** Version of the event or list that last changed the kind: a resourceVersion, or a revision of the store. */
  readonly services: bigint;
  readonly slices: bigint;
  readonly nodes: bigint;
  /** Versions up to which the state is known to be that of the source, by events, lists and bookmarks. */
  readonly current: Readonly<Record<PositionKind, bigint>>;
}

/** Kinds that a position has versions of. */
export const positionKinds = ["services", "slices", "nodes"] as const;

/** Kind that a position has versions of. */
export type PositionKind = (typeof positionKinds)[number];

/** Returns the source of the positions of an API server. `clusterId` is undefined if the cluster is not identified. */
export function kubeSource(clusterId: string | undefined): string {
  return clusterId === undefined ? "kube" : `kube:${clusterId}`;
}

/**
 * How an offered state relates to a held one.
 *
 * - covers: it is not older.
 * - behind: it may be older in at least one kind.
 * - foreign: it comes from another cluster. An API server on an empty etcd is one.
 * - unrelated: nothing can be said, because a position is unknown or counts revisions of one watcher.
 */
export type Relation = "covers" | "behind" | "foreign" | "unrelated";

/** Compares the position of an offered state with that of a held state. Pure. */
export function relate(offered: Position | undefined, held: Position | undefined): Relation {
  if (offered === undefined || held === undefined) return "unrelated";
  const isKube = [offered.source, held.source].map((source) => source === "kube" || source.startsWith("kube:"));
  const isSame = offered.source === held.source;
  if (!isSame && !(isKube[0] && isKube[1])) return "unrelated";
  // A watcher that may not read the UID is taken to serve the cluster of the others.
  if (!isSame && offered.source !== "kube" && held.source !== "kube") return "foreign";
  return positionKinds.every((kind) => offered.current[kind] >= held[kind]) ? "covers" : "behind";
}
