import { type Position, type PositionKind, positionKinds } from "@kpng/model/forward/position.ts";
import type { Origin } from "../source/source.ts";
import type { Snapshot } from "./snapshot.ts";

/**
 * Computes the positions of a store's snapshots from the versions that its source reports. A position says how new a
 * state is, and can be compared between replicas. A version in it advances only when its kind changes: a replica that
 * saw fewer events of unchanged objects has the same position.
 *
 * Each `Store` has one and calls it for each update. Separate from `Store`, because only positions need the versions of
 * the source, and from `Currency`, which asks whether the source already has newer versions.
 */
export class PositionTracker {
  readonly #instance: string;
  /** Versions of the newest list or event, also of those that changed nothing. */
  readonly #seen = new Map<PositionKind, bigint>();
  /** Versions of the list or event that last changed each kind. */
  readonly #needed = new Map<PositionKind, bigint>();
  /** Number of times that a version went back since the last position. */
  #lossCount = 0n;

  /** `instance`: source of positions whose versions are revisions of the store. */
  constructor(instance: string) {
    this.#instance = instance;
  }

  /** Records what the source said about an update. */
  update(before: Snapshot, next: Snapshot, origin: Origin | undefined): void {
    for (const kind of positionKinds) {
      const seen = origin?.versions?.[kind];
      if (seen === undefined) continue;
      // The server lost data: its versions from now on mean something else.
      if (seen < (this.#seen.get(kind) ?? 0n)) this.#lossCount += 1n;
      this.#seen.set(kind, seen);
      const needed = this.#needed.get(kind);
      if (needed === undefined || seen < needed || isChanged(before, next, kind)) this.#needed.set(kind, seen);
    }
  }

  /** Returns the position of a snapshot whose update was recorded. */
  position(before: Position, revision: number, origin: Origin | undefined): Position {
    if (origin?.position !== undefined) return laterEpoch(origin.position, before);
    const isVersioned = this.#seen.size > 0;
    const version = (kind: PositionKind): bigint => (isVersioned ? (this.#needed.get(kind) ?? 0n) : BigInt(revision));
    const epoch = before.epoch + this.#lossCount;
    this.#lossCount = 0n;
    return {
      source: isVersioned ? kubeSourceName : this.#instance,
      epoch,
      services: version("services"),
      slices: version("slices"),
      nodes: version("nodes"),
    };
  }
}

/** Source of positions whose versions are resourceVersions of a Kubernetes API server. */
const kubeSourceName = "kube";

/** Keeps an epoch that subscribers of this watcher began, until its upstream has it too. */
function laterEpoch(position: Position, before: Position): Position {
  if (position.source !== before.source || position.epoch >= before.epoch) return position;
  return { ...position, epoch: before.epoch };
}

function isChanged(before: Snapshot, next: Snapshot, kind: PositionKind): boolean {
  switch (kind) {
    case "services":
      return next.services !== before.services;
    case "slices":
      return next.slicesByService !== before.slicesByService;
    default:
      return next.nodes !== before.nodes;
  }
}
