import type { Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import type { ItemDigest } from "@kpng/model/wire/item-digest.ts";
import type { Frame } from "./frames.ts";

/**
 * One object of a view as a stream carries it: a Service, an endpoint or a node. The watcher encodes it once and sends
 * the same bytes to all subscribers that need it.
 */
export interface Item {
  /** Index into {@link Order.sections}. */
  readonly section: number;
  readonly path: string;
  /** The Set operation for the item. Two items with the same path are equal if these bytes are. */
  readonly frame: Frame;
  /** Cached by digestOf; undefined until its first call. */
  digest?: ItemDigest | undefined;
}

/** The order of operations in a batch: puts or deletes, one section after the other. */
export interface Order {
  /** The KPNG set of each section, by index. Two sections may share a set. */
  readonly sections: readonly SetName[];
  readonly phases: readonly Phase[];
}

/** A part of a batch: the puts, or the deletes, of one section. */
export interface Phase {
  readonly kind: "put" | "delete";
  readonly section: number;
}
