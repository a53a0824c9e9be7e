import type { Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import type { ItemDigest } from "@kpng/model/wire/item-digest.ts";
import type { Frame } from "./frames.ts";

/**
 * One object of a view as a stream carries it: a Service, an endpoint or a node, encoded once for all subscribers that
 * need it. The other files of `items/` make items; `stream/delta` compares and sends them. A file of its own, because
 * both need the types.
 */
export interface Item {
  /** Index into {@link Order.sections}. */
  readonly section: number;
  /** Key within the section. *Shape:* `default/web`, and for an endpoint `default/web/` with its hash. */
  readonly path: string;
  /** The Set operation for the item. Two items with the same path are equal if these bytes are. */
  readonly frame: Frame;
  /** Cache of `digestOf`; undefined until it was called for this item. */
  digest?: ItemDigest | undefined;
}

/** The order of operations in a batch: a list of phases, each with the puts or the deletes of one section. */
export interface Order {
  /** The set of each section in KPNG's protocol, by index. Two sections may have the same set. */
  readonly sections: readonly SetName[];
  readonly phases: readonly Phase[];
}

/** A part of a batch: the puts, or the deletes, of one section. */
export interface Phase {
  readonly kind: "put" | "delete";
  readonly section: number;
}
