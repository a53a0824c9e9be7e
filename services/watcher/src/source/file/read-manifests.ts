import type { EndpointSlice } from "@kpng/model/endpoint.ts";
import { isRecord } from "@kpng/model/narrowing.ts";
import type { Node } from "@kpng/model/node.ts";
import type { Service } from "@kpng/model/service.ts";
import { decodeNode } from "../decode/decode-node.ts";
import { decodeService } from "../decode/decode-service.ts";
import { decodeSlice } from "../decode/decode-slice.ts";
import { type Decoded, type DecodeOptions, type FieldPath, type FieldProblem, show } from "../decode/decoded.ts";

/** Decoded content of one document. If there are problems, only queries use the rest. */
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

/**
 * Decodes a Kubernetes object: a Service, EndpointSlice or Node, or a list of objects. Other kinds are only counted.
 * Pure.
 */
export function readManifests(value: Readonly<Record<string, unknown>>, options: DecodeOptions): DocumentContent {
  const content = new ManifestContent(options);
  content.add(value, [], undefined, 0);
  return content;
}

/** API versions of the kinds that are read. The same kind of another group, e.g. a Knative Service, is ignored. */
const apiVersions: Readonly<Record<string, string>> = {
  Service: "v1",
  EndpointSlice: "discovery.k8s.io/v1",
  Node: "v1",
  List: "v1",
  ServiceList: "v1",
  EndpointSliceList: "discovery.k8s.io/v1",
  NodeList: "v1",
};

/** Limit for lists inside lists, which aliases multiply. */
const maxListDepth = 3;

class ManifestContent implements DocumentContent {
  readonly services: LocatedObject<Service>[] = [];
  readonly slices: LocatedObject<EndpointSlice>[] = [];
  readonly nodes: LocatedObject<Node>[] = [];
  readonly problems: FieldProblem[] = [];
  readonly notes: DocumentNote[] = [];
  readonly otherKinds = new Map<string, number>();
  readonly #options: DecodeOptions;

  constructor(options: DecodeOptions) {
    this.#options = options;
  }

  /** `impliedKind`: kind of the items of a typed list such as ServiceList, because the API server omits it there. */
  add(value: unknown, path: FieldPath, impliedKind: string | undefined, depth: number): void {
    if (!isRecord(value)) {
      this.problems.push({ path, problem: `${show(value)} is not a Kubernetes object` });
      return;
    }
    const kind = value.kind ?? impliedKind;
    if (typeof kind !== "string" || kind === "") {
      this.problems.push({ path, problem: `the object has ${kind === undefined ? "no kind" : `kind ${show(kind)}`}` });
      return;
    }
    const apiVersion = value.apiVersion ?? apiVersions[kind];
    if (!Object.hasOwn(apiVersions, kind) || apiVersion !== apiVersions[kind]) {
      const name = typeof apiVersion === "string" ? `${kind} (${apiVersion})` : kind;
      this.otherKinds.set(name, (this.otherKinds.get(name) ?? 0) + 1);
      return;
    }
    switch (kind) {
      case "Service":
        this.#keep(this.services, decodeService(value, this.#options), path);
        break;
      case "EndpointSlice":
        this.#keep(this.slices, decodeSlice(value), path);
        break;
      case "Node":
        this.#keep(this.nodes, decodeNode(value, this.#options), path);
        break;
      default:
        this.#addList(value, path, kind === "List" ? undefined : kind.slice(0, -"List".length), depth);
    }
  }

  #addList(
    list: Readonly<Record<string, unknown>>,
    path: FieldPath,
    itemKind: string | undefined,
    depth: number,
  ): void {
    const items = list.items ?? [];
    if (!Array.isArray(items) || depth >= maxListDepth) {
      const problem = depth >= maxListDepth ? "lists are nested too deeply" : `items is not a list: ${show(items)}`;
      this.problems.push({ path: [...path, "items"], problem });
      return;
    }
    for (const [index, item] of items.entries()) this.add(item, [...path, "items", index], itemKind, depth + 1);
  }

  #keep<T>(objects: LocatedObject<T>[], decoded: Decoded<T>, path: FieldPath): void {
    switch (decoded.kind) {
      case "ok":
        objects.push({ path, value: decoded.value });
        // Invalid parts make the input invalid, unlike with an API server: the author of a file can correct it.
        for (const part of decoded.skipped) this.problems.push({ ...part, path: [...path, ...part.path] });
        for (const note of decoded.notes) this.notes.push({ path, note });
        break;
      case "skip":
        this.notes.push({ path, note: decoded.note });
        break;
      case "bad":
        this.problems.push({ path: [...path, ...decoded.path], problem: decoded.problem });
    }
  }
}
