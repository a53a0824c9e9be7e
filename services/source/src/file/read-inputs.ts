import { isRecord } from "@kpng/model/narrowing.ts";
import { decodeNode } from "../decode/decode-node.ts";
import { decodeService } from "../decode/decode-service.ts";
import { decodeSlice } from "../decode/decode-slice.ts";
import { type Decoded, type DecodeOptions, show } from "../decode/decoded.ts";
import type { ClusterObjects } from "../source.ts";
import { below, InputContent, type InputProblem, type Place } from "./input-content.ts";
import type { LoadedInput } from "./input-files.ts";
import { parseDocuments } from "./parse-documents.ts";
import { readState } from "./read-state.ts";

/** All objects, or all problems. `notes` are for the log; `skipped` lists the problems of omitted objects and parts. */
export type InputResult =
  | {
      readonly kind: "ok";
      readonly objects: ClusterObjects;
      readonly notes: readonly InputProblem[];
      readonly skipped: readonly InputProblem[];
    }
  | { readonly kind: "bad"; readonly problems: readonly InputProblem[] };

/**
 * Parses and decodes the contents of all inputs. No object may be defined twice. Without `skipsBad`, one problem makes
 * the whole input invalid, because part of a cluster must not be served. With it, invalid and duplicate objects are
 * omitted, but the input is still invalid if a file cannot be read or parsed, or if no object is valid. Pure.
 */
export function readInput(
  { texts, failures }: Pick<LoadedInput, "texts" | "failures">,
  options: DecodeOptions,
  skipsBad = false,
): InputResult {
  const content = new InputContent();
  const unreadable = [...failures];
  for (const { file, text } of texts) {
    const parsed = parseDocuments(text);
    if (parsed.kind === "bad") {
      const { line, column, problem } = parsed;
      unreadable.push({ at: [file, line, column].filter((part) => part !== undefined).join(":"), problem });
      continue;
    }
    const { documents } = parsed;
    for (const [index, value] of documents.entries()) {
      const at = documents.length === 1 ? file : `${file}, document ${index + 1}`;
      readDocument(value, { file, at, path: [] }, options, content);
    }
  }
  const { services, slices, nodes } = content;
  const problems = [...unreadable, ...content.problems];
  const isUsable = skipsBad && unreadable.length === 0 && services.length + slices.length + nodes.length > 0;
  if (problems.length > 0 && !isUsable) return { kind: "bad", problems };
  return { kind: "ok", objects: { services, slices, nodes }, notes: content.notes, skipped: problems };
}

/** Decodes one document: a Kubernetes object, a KPNG state file, or nothing if it is empty. */
function readDocument(value: unknown, place: Place, options: DecodeOptions, content: InputContent): void {
  if (value === null || value === undefined) return;
  if (isRecord(value)) {
    if ("kind" in value || "apiVersion" in value) {
      addManifest(value, place, options, content);
      return;
    }
    if ("nodes" in value || "services" in value || Object.keys(value).length === 0) {
      readState(value, place, content);
      return;
    }
  }
  const problem = "neither a Kubernetes object (no field kind) nor a KPNG state file (no field nodes or services)";
  content.addProblem(place, problem);
}

/**
 * Decodes a Kubernetes object and adds it: a Service, an EndpointSlice, a Node, or a list of objects. Other kinds are
 * only counted. `impliedKind` is the kind of the items in a typed list such as ServiceList, where the API server omits
 * the kind.
 */
function addManifest(
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
