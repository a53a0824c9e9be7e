import { kubeSource, type Position, type PositionKind, positionKinds } from "@kpng/model/forward/position.ts";
import type { Origin, Versions } from "../source/source.ts";
import type { Snapshot } from "./snapshot.ts";

/** Computes the positions of a store's snapshots from the versions that its source reports. */
export class PositionTracker {
  readonly #instance: string;
  /** Versions up to which the state is that of the source. */
  readonly #current = new Map<PositionKind, bigint>();
  /** Versions of the list or event that last changed each kind. */
  readonly #changed = new Map<PositionKind, bigint>();

  /** `instance`: source of positions whose versions are revisions of the store. */
  constructor(instance: string) {
    this.#instance = instance;
  }

  /** The state is that of the source up to these versions. */
  known(versions: Versions): void {
    for (const kind of positionKinds) {
      const version = versions[kind];
      // Not the maximum: an etcd that lost data counts from a lower version.
      if (version !== undefined) this.#current.set(kind, version);
    }
  }

  /** Returns the position of the snapshot `next`; `before` is the one before. Call it for each update, in order. */
  update(before: Snapshot, next: Snapshot, revision: number, origin: Origin | undefined): Position {
    if (origin?.position !== undefined) return origin.position;
    const { versions = {}, clusterId } = origin ?? {};
    this.known(versions);
    for (const kind of positionKinds) {
      const version = versions[kind];
      const changed = this.#changed.get(kind);
      if (version === undefined) continue;
      if (changed === undefined || version < changed || isChanged(before, next, kind)) this.#changed.set(kind, version);
    }
    const isVersioned = this.#current.size > 0;
    const versionsOf = (known: ReadonlyMap<PositionKind, bigint>): Record<PositionKind, bigint> => {
      const version = (kind: PositionKind): bigint => (isVersioned ? (known.get(kind) ?? 0n) : BigInt(revision));
      return { services: version("services"), slices: version("slices"), nodes: version("nodes") };
    };
    const source = isVersioned ? kubeSource(clusterId) : this.#instance;
    return { source, ...versionsOf(this.#changed), current: versionsOf(this.#current) };
  }
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
