import type { EndpointSlice } from "@kpng/model/endpoint.ts";
import type { Node } from "@kpng/model/node.ts";
import type { Service } from "@kpng/model/service.ts";
import type { FieldPath, FieldProblem } from "../../decode/decoded.ts";

/** An object and where in its document it stands. */
export interface Found<T> {
  readonly path: FieldPath;
  readonly value: T;
}

export interface DocumentNote {
  readonly path: FieldPath;
  readonly note: string;
}

/** What a document holds. Where there are problems the rest does not count. */
export interface DocumentContent {
  readonly services: readonly Found<Service>[];
  readonly slices: readonly Found<EndpointSlice>[];
  readonly nodes: readonly Found<Node>[];
  readonly problems: readonly FieldProblem[];
  readonly notes: readonly DocumentNote[];
  /** Objects of kinds that no proxy needs: how many of each, by a text like "Deployment (apps/v1)". */
  readonly otherKinds: ReadonlyMap<string, number>;
}

export const emptyContent: DocumentContent = {
  services: [],
  slices: [],
  nodes: [],
  problems: [],
  notes: [],
  otherKinds: new Map(),
};
