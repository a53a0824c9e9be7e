/**
 * Messages of the status page's event stream, as JSON. Both ends come from one process, so the format may change with
 * any version. Times are in milliseconds since 1970, durations in milliseconds.
 *
 * `LiveState` makes them, and `main.ts` of the page applies them to its `PageState`. Separate, and types only, because
 * both ends import them: the script must not import code of Node.js.
 */
export interface LiveFrame {
  /** True if the frame replaces everything that the page holds; false if it continues the previous one. */
  readonly isWhole: boolean;
  readonly status: LiveStatus;
  /** New and changed nodes. */
  readonly nodes: readonly LiveNode[];
  /** Names of nodes that are gone. */
  readonly goneNodes: readonly string[];
  /** New changes and changes with new counts, the newest first. */
  readonly changes: readonly LiveChange[];
  /** Convergence of the remembered changes, the oldest first; only in a whole frame. */
  readonly history: readonly Convergence[];
  /** New and changed Services, in the JSON of the inspect API; never in a whole frame. */
  readonly services: readonly unknown[];
  /** `namespace/name` of deleted Services. */
  readonly goneServices: readonly string[];
  /** True if too many Services changed for one frame: the page lists them again. */
  readonly mustListServices: boolean;
}

/** Counts of the watcher. */
export interface LiveStatus {
  readonly nowMs: number;
  readonly instance: string;
  readonly startedAtMs: number;
  readonly revision: number;
  readonly storedAtMs: number;
  readonly isSynced: boolean;
  readonly missingKinds: readonly string[];
  readonly serviceCount: number;
  readonly sliceCount: number;
  readonly endpointCount: number;
  readonly nodeCount: number;
  /** Number of nodes in each state. */
  readonly states: Readonly<Record<NodeState, number>>;
  /** Numbers of streams: of relays, and of observers (people and recorders). */
  readonly relayCount: number;
  readonly observerCount: number;
  /** Longest time for which a node has not applied a batch; 0 if nothing is pending. */
  readonly maxLagMs: number;
}

/** The state of a node: `ApplyState` of the inspect API, as a word. */
export type NodeState = "current" | "received" | "behind" | "failing" | "absent" | "unknown";

/** A node, and how far its streams are. */
export interface LiveNode {
  readonly name: string;
  readonly zone: string;
  /** "behind" only after a second without the newest revision; see `nodeProgress`. */
  readonly state: NodeState;
  /** When the oldest batch that is not applied was sent; 0 unless the node is behind or failing. */
  readonly sinceMs: number;
  /** Revision that the node has applied; 0 if it has every change, so that its row stays equal. */
  readonly revision: number;
  readonly programs: string;
  readonly streamCount: number;
  readonly observerCount: number;
  readonly error: string;
}

/** Median, 99th percentile and maximum over the nodes. */
export type Spread = readonly [p50: number, p99: number, max: number];

/** Revision, its time, and the median and maximum time until nodes applied it. */
export type Convergence = readonly [revision: number, storedAtMs: number, p50: number, max: number];

/** Stages between store and kernel, in their order. */
export type StageName = "send" | "transit" | "wait" | "render" | "commit";

/** A change, and how far it has reached the nodes. */
export interface LiveChange {
  readonly revision: number;
  /** The first few objects. *Shape:* "endpoints ns/web". */
  readonly objects: readonly string[];
  readonly objectCount: number;
  readonly isFirstList: boolean;
  readonly source: string;
  /** When the source received it; 0 if unknown. */
  readonly receivedAtMs: number;
  readonly storedAtMs: number;
  readonly sentCount: number;
  readonly appliedCount: number;
  readonly failedCount: number;
  readonly lostCount: number;
  /** Absent until a node has applied it. */
  readonly total?: Spread;
  readonly stages?: Readonly<Partial<Record<StageName, Spread>>> | undefined;
  readonly slowest?: SlowestNode;
  readonly failures: readonly { readonly node: string; readonly error: string }[];
}

/** The last node to apply a change. */
export interface SlowestNode {
  readonly node: string;
  readonly stages: Readonly<Partial<Record<StageName, number>>>;
  readonly totalMs: number;
}
