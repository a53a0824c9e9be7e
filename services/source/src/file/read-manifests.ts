import { isRecord } from "@kpng/model/narrowing.ts";
import { decodeNode } from "../decode/decode-node.ts";
import { decodeService } from "../decode/decode-service.ts";
import { decodeSlice } from "../decode/decode-slice.ts";
import { type Decoded, type DecodeOptions, show } from "../decode/decoded.ts";
import { below, type InputContent, type Place } from "./input-content.ts";

/** Decodes Kubernetes objects: Services, EndpointSlices, Nodes, and lists of objects. Other kinds are only counted. */
export class ManifestReader {
  readonly #options: DecodeOptions;
  readonly #content: InputContent;

  constructor(options: DecodeOptions, content: InputContent) {
    this.#options = options;
    this.#content = content;
  }

  /**
   * Adds an object. `impliedKind` is the kind of the items in a typed list such as ServiceList, where the API server
   * omits the kind.
   */
  add(object: unknown, at: Place, impliedKind?: string, depth = 0): void {
    const content = this.#content;
    const kind = isRecord(object) ? (object.kind ?? impliedKind) : undefined;
    if (!isRecord(object)) content.addProblem(at, `${show(object)} is not a Kubernetes object`);
    else if (kind === undefined) content.addProblem(at, "the object has no kind");
    else if (typeof kind !== "string" || kind === "") content.addProblem(at, `the object has kind ${show(kind)}`);
    else this.#addKind(kind, object, at, depth);
  }

  #addKind(kind: string, object: Readonly<Record<string, unknown>>, at: Place, depth: number): void {
    const content = this.#content;
    const apiVersion = object.apiVersion ?? apiVersions[kind];
    if (!Object.hasOwn(apiVersions, kind) || apiVersion !== apiVersions[kind]) {
      content.ignore(typeof apiVersion === "string" ? `${kind} (${apiVersion})` : kind, at);
    } else if (kind === "Service") {
      this.#add(decodeService(object, this.#options), at, (service) => content.addService(service, at));
    } else if (kind === "EndpointSlice") {
      this.#add(decodeSlice(object), at, (slice) => content.addSlice(slice, at));
    } else if (kind === "Node") {
      this.#add(decodeNode(object, this.#options), at, (node) => content.addNode(node, at));
    } else {
      const itemKind = kind === "List" ? undefined : kind.slice(0, -"List".length);
      this.#addList(object.items ?? [], below(at, "items"), itemKind, depth);
    }
  }

  #addList(items: unknown, at: Place, itemKind: string | undefined, depth: number): void {
    if (depth >= maxListDepth) this.#content.addProblem(at, "lists are nested too deeply");
    else if (!Array.isArray(items)) this.#content.addProblem(at, `items is not a list: ${show(items)}`);
    else for (const [index, item] of items.entries()) this.add(item, below(at, index), itemKind, depth + 1);
  }

  #add<T>(decoded: Decoded<T>, at: Place, use: (value: T) => void): void {
    const content = this.#content;
    if (decoded.kind === "bad") content.addProblem(below(at, ...decoded.path), decoded.problem);
    else if (decoded.kind === "skip") content.addNote(at, decoded.note);
    else {
      use(decoded.value);
      // Unlike in objects from an API server, invalid parts make the input invalid, because the author of a file can
      // correct it.
      for (const { path, problem } of decoded.skipped) content.addProblem(below(at, ...path), problem);
      for (const note of decoded.notes) content.addNote(at, note);
    }
  }
}

/**
 * API versions of the kinds that are read. A kind of the same name in another group, e.g. a Knative Service, is
 * ignored.
 */
const apiVersions: Readonly<Record<string, string>> = {
  Service: "v1",
  EndpointSlice: "discovery.k8s.io/v1",
  Node: "v1",
  List: "v1",
  ServiceList: "v1",
  EndpointSliceList: "discovery.k8s.io/v1",
  NodeList: "v1",
};

/** Maximum nesting depth of lists; aliases can multiply nested lists. */
const maxListDepth = 3;
