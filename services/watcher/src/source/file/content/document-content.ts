import type { EndpointSlice } from "@kpng/model/endpoint.ts";
import type { Node } from "@kpng/model/node.ts";
import type { Service } from "@kpng/model/service.ts";
import type { FieldPath, FieldProblem } from "../../decode/decoded.ts";

/**
 * Decoded content of one document. If there are problems, the rest is used only with --skip-bad. `kpng file` reads it
 * from a manifest (`readManifests`) or a state file (`readState`). A file of its own, because both decoders and the
 * code that merges documents share it.
 */
export interface DocumentContent {
  readonly services: readonly LocatedObject<Service>[];
  readonly slices: readonly LocatedObject<EndpointSlice>[];
  readonly nodes: readonly LocatedObject<Node>[];
  readonly problems: readonly FieldProblem[];
  readonly notes: readonly DocumentNote[];
  /** Numbers of objects of other kinds, which are ignored. Keys are texts such as "Deployment (apps/v1)". */
  readonly otherKinds: ReadonlyMap<string, number>;
}

/** A decoded object and its path in the document. */
export interface LocatedObject<T> {
  readonly path: FieldPath;
  readonly value: T;
}

/** Something in a document that users may want to know, but that is not a problem. */
export interface DocumentNote {
  readonly path: FieldPath;
  readonly note: string;
}

/** Content of an empty document. */
export const emptyContent: DocumentContent = {
  services: [],
  slices: [],
  nodes: [],
  problems: [],
  notes: [],
  otherKinds: new Map(),
};
