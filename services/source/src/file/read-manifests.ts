import { isRecord } from "@kpng/model/narrowing.ts";
import { decodeNode } from "../decode/decode-node.ts";
import { decodeService } from "../decode/decode-service.ts";
import { decodeSlice } from "../decode/decode-slice.ts";
import { type Decoded, type DecodeOptions, show } from "../decode/decoded.ts";
import { below, type InputContent, type Place } from "./input-content.ts";

/**
 * Decodes a Kubernetes object and adds it: a Service, an EndpointSlice, a Node, or a list of objects. Other kinds are
 * only counted. `impliedKind` is the kind of the items in a typed list such as ServiceList, where the API server omits
 * the kind.
 */
export function addManifest(
  object: unknown,
  at: Place,
  options: DecodeOptions,
  content: InputContent,
  impliedKind?: string,
  depth = 0,
): void {
  const kind = isRecord(object) ? (object.kind ?? impliedKind) : undefined;
  if (!isRecord(object)) content.addProblem(at, `${show(object)} is not a Kubernetes object`);
  else if (kind === undefined) content.addProblem(at, "the object has no kind");
  else if (typeof kind !== "string" || kind === "") content.addProblem(at, `the object has kind ${show(kind)}`);
  else if (!Object.hasOwn(apiVersions, kind) || (object.apiVersion ?? apiVersions[kind]) !== apiVersions[kind]) {
    content.ignore(typeof object.apiVersion === "string" ? `${kind} (${object.apiVersion})` : kind, at);
  } else if (kind === "Service") {
    addDecoded(decodeService(object, options), at, content, (service) => content.addService(service, at));
  } else if (kind === "EndpointSlice") {
    addDecoded(decodeSlice(object), at, content, (slice) => content.addSlice(slice, at));
  } else if (kind === "Node") {
    addDecoded(decodeNode(object, options), at, content, (node) => content.addNode(node, at));
  } else {
    const items = object.items ?? [];
    const place = below(at, "items");
    const itemKind = kind === "List" ? undefined : kind.slice(0, -"List".length);
    if (depth >= maxListDepth) content.addProblem(place, "lists are nested too deeply");
    else if (!Array.isArray(items)) content.addProblem(place, `items is not a list: ${show(items)}`);
    else
      for (const [index, item] of items.entries())
        addManifest(item, below(place, index), options, content, itemKind, depth + 1);
  }
}

function addDecoded<T>(decoded: Decoded<T>, at: Place, content: InputContent, add: (value: T) => void): void {
  if (decoded.kind === "bad") content.addProblem(below(at, ...decoded.path), decoded.problem);
  else if (decoded.kind === "skip") content.addNote(at, decoded.note);
  else {
    add(decoded.value);
    // Unlike in objects from an API server, invalid parts make the input invalid, because the author of a file can
    // correct it.
    for (const { path, problem } of decoded.skipped) content.addProblem(below(at, ...path), problem);
    for (const note of decoded.notes) content.addNote(at, note);
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
