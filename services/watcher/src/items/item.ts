import type { ItemDigest } from "@kpng/model/wire/item-digest.ts";
import type { Frame } from "./frames.ts";

/** An item of a stream. */
export interface Item {
  /** Index into the projection's sections. */
  readonly section: number;
  readonly path: string;
  /** The operation that puts it. Two items of the same path are equal if these bytes are. */
  readonly frame: Frame;
  /** What stands for it in digests, once somebody has asked; see digestOf. */
  digest?: ItemDigest | undefined;
}
