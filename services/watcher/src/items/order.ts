import type { Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";

/** The order of a batch: what is put and deleted, section by section. */
export interface Order {
  /** What the items of a section are on the wire, by index. */
  readonly sections: readonly SetName[];
  readonly phases: readonly Phase[];
}

export interface Phase {
  readonly kind: "put" | "delete";
  readonly section: number;
}
