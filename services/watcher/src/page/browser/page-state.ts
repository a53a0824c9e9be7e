import type { Convergence, LiveChange, LiveFrame, LiveNode, LiveStatus } from "../live/live-rows.ts";
import { type ServiceRow, serviceKey } from "./inspect-rows.ts";

/** Number of changes and samples that the page keeps. */
const keptChanges = 50;
const keptPoints = 1_000;

/**
 * Everything that the status page knows. `main.ts` passes the frames of the event stream and the lists of the inspect
 * API to it; the sections read it. Separate from them, because it needs no document.
 *
 * *Bound:* the objects of the cluster, and constant numbers of changes and points of plots.
 */
export class PageState {
  status: LiveStatus | undefined;
  readonly nodes = new Map<string, LiveNode>();
  /** By revision. */
  readonly changes = new Map<number, LiveChange>();
  readonly convergence = new Map<number, Convergence>();
  /** Longest lag of a node, by time. */
  lag: readonly (readonly [atMs: number, lagMs: number])[] = [];
  readonly services = new Map<string, ServiceRow>();
  /** Revisions of the rows that frames changed since {@link beginServices}; undefined if no list is awaited. */
  #changedServices: Map<string, number> | undefined;

  /** Applies a frame. Returns true if the Services must be listed again. */
  apply(frame: LiveFrame): boolean {
    const { status, isWhole } = frame;
    const isOther = this.status !== undefined && this.status.instance !== status.instance;
    if (isWhole) {
      this.nodes.clear();
      this.changes.clear();
    }
    if (isOther) {
      this.convergence.clear();
      this.services.clear();
    }
    this.status = status;
    for (const node of frame.nodes) this.nodes.set(node.name, node);
    for (const name of frame.goneNodes) this.nodes.delete(name);
    for (const point of frame.history) this.convergence.set(point[0], point);
    // The newest first; a change with new counts keeps its place.
    for (const change of [...frame.changes].reverse()) {
      this.changes.set(change.revision, change);
      const { total } = change;
      if (total !== undefined && !change.isFirstList) {
        this.convergence.set(change.revision, [change.revision, change.storedAtMs, total[0], total[2]]);
      }
    }
    dropOldest(this.changes, keptChanges);
    dropOldest(this.convergence, keptPoints);
    this.lag = [...this.lag.slice(1 - keptPoints), [status.nowMs, status.maxLagMs]];
    for (const row of frame.services as readonly ServiceRow[]) {
      this.services.set(serviceKey(row), row);
      this.#changedServices?.set(serviceKey(row), status.revision);
    }
    for (const key of frame.goneServices) {
      this.services.delete(key);
      this.#changedServices?.set(key, status.revision);
    }
    return frame.mustListServices;
  }

  /** Call before the Services are listed: changes that arrive before the list are newer than it. */
  beginServices(): void {
    this.#changedServices = new Map();
  }

  /** Takes a complete list of the Services, as of `revision`, which is that of its first page. */
  applyServices(rows: readonly ServiceRow[], revision: number): void {
    const changed = this.#changedServices ?? new Map<string, number>();
    this.#changedServices = undefined;
    const isOlder = (key: string): boolean => (changed.get(key) ?? 0) > revision;
    const listed = new Map(rows.map((row) => [serviceKey(row), row]));
    for (const key of this.services.keys()) if (!listed.has(key) && !isOlder(key)) this.services.delete(key);
    for (const [key, row] of listed) if (!isOlder(key)) this.services.set(key, row);
  }
}

/** Removes the lowest revisions beyond `kept`. */
function dropOldest(byRevision: Map<number, unknown>, kept: number): void {
  if (byRevision.size <= kept) return;
  const revisions = [...byRevision.keys()].sort((a, b) => a - b);
  for (const revision of revisions.slice(0, byRevision.size - kept)) byRevision.delete(revision);
}
