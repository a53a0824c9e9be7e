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
export interface Unit {
  /** The objects that the items were made from: the same objects give the same items. */
  readonly inputs: readonly unknown[];
  readonly items: readonly Item[];
}

/** All that a subscriber should have, by unit. */
export type Units = ReadonlyMap<string, Unit>;

export const noUnits: Units = new Map();

/** What a stream shows of a snapshot, and in which order its changes are told. */
export interface Projection {
  /** What a section's items are on the wire, by index. */
  readonly sections: readonly SetName[];
  /** The order of a batch. */
  readonly phases: readonly Phase[];
  /** Returns all units; those of `previous` whose inputs are the same objects are taken over. */
  project(snapshot: Snapshot, previous: Units): Units;
}

export interface Phase {
  readonly kind: "put" | "delete";
  readonly section: number;
}

/** Returns `previous` if it was made from the same inputs, else a new unit. */
export function reuseUnit(previous: Unit | undefined, inputs: readonly unknown[], makeItems: () => Item[]): Unit {
  if (previous?.inputs.every((input, index) => input === inputs[index])) return previous;
  return { inputs, items: makeItems() };
}
