import { toJson } from "@bufbuild/protobuf";
import { ServiceSchema } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import type { InspectContext } from "../../inspect/inspect-context.ts";
import { serviceRow } from "../../inspect/rows/service-row.ts";
import { changedServices } from "../../store/derived.ts";
import { countObjects, type Snapshot, slicesOf } from "../../store/snapshot.ts";
import { convergenceOf, liveChange } from "./live-change.ts";
import type { LiveFrame, LiveNode, LiveStatus } from "./live-rows.ts";
import { type NodeProgress, nodeProgress } from "./node-progress.ts";

/** Number of changes that the page shows. */
const shownChanges = 50;

/** Limit for the Services in one frame. After a change of more, the page lists them again. */
const maxServices = 500;

/**
 * State that all open status pages share: what they were sent last. Each call of {@link advance} computes the
 * difference once for all of them. `LiveFeed` calls it once a second. Separate from it, because this class knows the
 * watcher, and `LiveFeed` the pages.
 *
 * *Cost:* O(nodes), see {@link nodeProgress}, plus the changed Services and at most {@link shownChanges} changes.
 * *Bound:* one row for each node.
 */
export class LiveState {
  readonly #context: InspectContext;
  #snapshot: Snapshot;
  #progress: ReadonlyMap<string, NodeProgress> = new Map();
  #version = 0;
  #counts: ObjectCounts;

  constructor(context: InspectContext) {
    this.#context = context;
    this.#snapshot = context.store.snapshot;
    this.#counts = countObjects(this.#snapshot);
  }

  /** Returns what changed since the last call. */
  advance(nowMs: number): LiveFrame {
    const { store, changes } = this.#context;
    const [before, snapshot] = [this.#snapshot, store.snapshot];
    const { nodes, goneNodes } = this.#advanceNodes(snapshot, nowMs);
    const changed: LiveFrame["changes"][number][] = [];
    let shown = 0;
    for (const record of changes.newestFirst()) {
      shown += 1;
      if (shown > shownChanges) break;
      if (record.version > this.#version) changed.push(liveChange(record));
    }
    this.#version = changes.version;
    this.#counts = countsAfter(this.#counts, before, snapshot);
    this.#snapshot = snapshot;
    return {
      isWhole: false,
      status: this.#status(nowMs),
      nodes,
      goneNodes,
      changes: changed,
      history: [],
      ...servicesBetween(before, snapshot),
    };
  }

  /** Returns everything that a new page needs, as of the last {@link advance}. The page itself lists the Services. */
  whole(nowMs: number): LiveFrame {
    const records = [...this.#context.changes.newestFirst()];
    return {
      isWhole: true,
      status: this.#status(nowMs),
      nodes: Array.from(this.#progress.values(), ({ row }) => row),
      goneNodes: [],
      changes: records.slice(0, shownChanges).map(liveChange),
      history: records
        .reverse()
        .map(convergenceOf)
        .filter((convergence) => convergence !== undefined),
      services: [],
      goneServices: [],
      mustListServices: true,
    };
  }

  #advanceNodes(snapshot: Snapshot, nowMs: number): Pick<LiveFrame, "nodes" | "goneNodes"> {
    const before = this.#progress;
    const progress = nodeProgress(snapshot, this.#context.subscribers.open, before, nowMs);
    this.#progress = progress;
    const nodes: LiveNode[] = [];
    for (const [name, { row }] of progress) if (before.get(name)?.row !== row) nodes.push(row);
    return { nodes, goneNodes: [...before.keys()].filter((name) => !progress.has(name)) };
  }

  #status(nowMs: number): LiveStatus {
    const { store, subscribers, startedAtMs } = this.#context;
    const snapshot = this.#snapshot;
    const states = { current: 0, received: 0, behind: 0, failing: 0, absent: 0, unknown: 0 };
    let maxLagMs = 0;
    for (const { row, sinceMs } of this.#progress.values()) {
      states[row.state] += 1;
      if (sinceMs > 0) maxLagMs = Math.max(maxLagMs, nowMs - sinceMs);
    }
    let [relayCount, observerCount] = [0, 0];
    for (const { isObserver, kind } of subscribers.open) {
      if (isObserver) observerCount += 1;
      else if (kind !== "local") relayCount += 1;
    }
    return {
      nowMs,
      instance: store.instance,
      startedAtMs,
      revision: snapshot.revision,
      storedAtMs: snapshot.revision === 0 ? 0 : snapshot.storedAtMs,
      isSynced: snapshot.isSynced,
      missingKinds: store.missingKinds,
      ...this.#counts,
      states,
      relayCount,
      observerCount,
      maxLagMs: Math.round(maxLagMs),
    };
  }
}

type ObjectCounts = ReturnType<typeof countObjects>;

/** Same as `countObjects(snapshot)`, from the counts of `before`: a walk over all slices each second would show. */
function countsAfter(counts: ObjectCounts, before: Snapshot, snapshot: Snapshot): ObjectCounts {
  let { sliceCount, endpointCount } = counts;
  for (const key of changedServices(before, snapshot)) {
    for (const { endpoints } of slicesOf(before, key as ServiceKey)) {
      sliceCount -= 1;
      endpointCount -= endpoints.length;
    }
    for (const { endpoints } of slicesOf(snapshot, key as ServiceKey)) {
      sliceCount += 1;
      endpointCount += endpoints.length;
    }
  }
  return { serviceCount: snapshot.services.size, sliceCount, endpointCount, nodeCount: snapshot.nodes.size };
}

function servicesBetween(
  before: Snapshot,
  snapshot: Snapshot,
): Pick<LiveFrame, "services" | "goneServices" | "mustListServices"> {
  const keys = before === snapshot ? [] : changedServices(before, snapshot);
  if (keys.length > maxServices) return { services: [], goneServices: [], mustListServices: true };
  const services: unknown[] = [];
  const goneServices: string[] = [];
  for (const key of keys) {
    const service = snapshot.services.get(key);
    if (service === undefined) goneServices.push(key);
    else services.push(toJson(ServiceSchema, serviceRow(service, slicesOf(snapshot, key as ServiceKey))));
  }
  return { services, goneServices, mustListServices: false };
}
