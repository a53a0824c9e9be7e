import type { Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import type { Snapshot } from "../store/snapshot.ts";

/** An item of a stream, encoded. */
export interface Item {
  /** Index into the sections of the projection. */
  readonly section: number;
  readonly path: string;
  readonly bytes: Uint8Array;
}

/** Items that come from the same objects and therefore change together. */
export type Unit = readonly Item[];

/** The units of a view that may differ from those of an earlier one, by key; undefined for one that is gone. */
export type UnitChanges = ReadonlyMap<string, Unit | undefined>;

/** What a stream shows of a snapshot, and in which order its changes are told. */
export interface Projection {
  /** What a section's items are on the wire, by index. */
  readonly sections: readonly SetName[];
  /** The order of a batch. */
  readonly phases: readonly Phase[];
  /**
   * Returns the units that may differ from those of `before`; all units if `before` is undefined.
   *
   * Pure. *Cost:* the units that are returned, not those that there are.
   */
  project(snapshot: Snapshot, before: Snapshot | undefined): UnitChanges;
}

export interface Phase {
  readonly kind: "put" | "delete";
  readonly section: number;
}
