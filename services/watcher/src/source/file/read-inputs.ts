import { sliceKey } from "@kpng/model/endpoint.ts";
import { isRecord } from "@kpng/model/narrowing.ts";
import { serviceKey } from "@kpng/model/service.ts";
import { type DecodeOptions, type FieldPath, showPath } from "../decode/decoded.ts";
import type { ClusterObjects } from "../source.ts";
import { type InputFilesOptions, type InputText, listInputFiles, readInputFiles } from "./input-files.ts";
import { type ParsedDocument, parseDocuments, type TextPosition } from "./parse-documents.ts";
import { type DocumentContent, emptyContent, readManifests } from "./read-manifests.ts";
import { readState } from "./read-state.ts";

/** Options of {@link loadInput}. */
interface LoadInputOptions extends InputFilesOptions {
  readonly decode: DecodeOptions;
  /** True to leave out invalid objects. Default false. */
  readonly skipsBad?: boolean | undefined;
}

/** The contents of all files, loaded but not yet parsed. */
export interface LoadedInput {
  readonly fileCount: number;
  /** Equal for the same files with the same contents. */
  readonly digest: string;
  /** True if a file is empty, or there is no file. Inputs that are being written often look like this for a moment. */
  readonly isEmptied: boolean;
  /** Parses and decodes the inputs. */
  read(): InputResult;
}

/**
 * Loads the contents of all inputs: files, folders and standard input ("-"). Problems are part of the result of `read`,
 * not errors. Without `skipsBad`, one problem makes the whole input invalid, because part of a cluster must not be
 * served. Call `read` only if the digest has changed.
 */
export async function loadInput(inputs: readonly string[], options: LoadInputOptions): Promise<LoadedInput> {
  const listed = await listInputFiles(inputs);
  const loaded = await readInputFiles(listed.files, options);
  const failures = [...listed.failures, ...loaded.failures];
  return {
    fileCount: listed.files.length,
    digest: JSON.stringify([loaded.digest, listed.failures]),
    isEmptied: listed.files.length === 0 || loaded.texts.some(({ text }) => text === ""),
    read: () => {
      const result = readTexts(loaded.texts, options.decode, options.skipsBad);
      if (failures.length === 0) return result;
      return { kind: "bad", problems: [...failures, ...(result.kind === "bad" ? result.problems : [])] };
    },
  };
}

/**
 * Result of reading all inputs: all objects, or all problems. `skipped` has the problems of objects and parts that were
 * left out.
 */
export type InputResult =
  | {
      readonly kind: "ok";
      readonly objects: ClusterObjects;
      readonly notes: readonly InputNote[];
      readonly skipped: readonly InputProblem[];
    }
  | { readonly kind: "bad"; readonly problems: readonly InputProblem[] };

/** Position in an input file. Line and column are absent for the file as a whole. */
interface InputLocation extends TextPosition {
  readonly file: string;
}

/** Something in the inputs that makes them invalid. */
export interface InputProblem extends InputLocation {
  readonly problem: string;
}

/** Something in the inputs that is ignored or unusual, for the log. */
interface InputNote extends InputLocation {
  readonly note: string;
}

/** A document of a file and its decoded content. */
interface ReadDocument {
  readonly file: string;
  readonly document: ParsedDocument;
  readonly content: DocumentContent;
}

/** Formats a location. *Shape:* `file:line:column`, as far as it is known. */
export function formatLocation({ file, line, column }: InputLocation): string {
  return [file, line, column].filter((part) => part !== undefined).join(":");
}

/**
 * Parses and decodes the texts of all input files. No object may be defined twice. With `skipsBad`, invalid objects are
 * left out, and the last of several objects with one name counts; but a text that cannot be parsed still makes the
 * whole input invalid, and so does an input without any valid object. Pure.
 */
export function readTexts(texts: readonly InputText[], options: DecodeOptions, skipsBad = false): InputResult {
  const problems: InputProblem[] = [];
  const documents: ReadDocument[] = [];
  let isReadable = true;
  for (const { file, text } of texts) {
    const parsed = parseDocuments(text);
    if (parsed.kind === "bad") {
      problems.push({ file, ...parsed.problem });
      isReadable = false;
      continue;
    }
    for (const document of parsed.documents) {
      documents.push({ file, document, content: readDocument(document.value, options) });
    }
  }
  for (const document of documents) {
    const all = document.content.problems;
    for (const { path, problem } of all.slice(0, maxReports)) {
      const field = showPath(path);
      problems.push({ ...locate(document, path), problem: field === "" ? problem : `${field}: ${problem}` });
    }
    if (all.length > maxReports)
      problems.push({ file: document.file, problem: `${all.length - maxReports} more problems` });
  }
  problems.push(...findDuplicates(documents));
  const count = ({ content: { services, slices, nodes } }: ReadDocument): number =>
    services.length + slices.length + nodes.length;
  const isUsable = skipsBad && isReadable && documents.some((document) => count(document) > 0);
  if (problems.length > 0 && !isUsable) return { kind: "bad", problems };
  const objects = {
    services: documents.flatMap(({ content }) => content.services.map((located) => located.value)),
    slices: documents.flatMap(({ content }) => content.slices.map((located) => located.value)),
    nodes: documents.flatMap(({ content }) => content.nodes.map((located) => located.value)),
  };
  return { kind: "ok", objects, notes: makeNotes(documents), skipped: problems };
}

/** Limit for the problems, and for the notes, of one document. */
const maxReports = 20;

function locate({ file, document }: ReadDocument, path: FieldPath): InputLocation {
  return { file, ...document.locate(path) };
}

/** Decodes one document: a Kubernetes object, a KPNG state file, or nothing if it is empty. */
function readDocument(value: unknown, options: DecodeOptions): DocumentContent {
  if (value === null || value === undefined) return emptyContent;
  if (isRecord(value)) {
    if ("kind" in value || "apiVersion" in value) return readManifests(value, options);
    if ("nodes" in value || "services" in value || Object.keys(value).length === 0) return readState(value);
  }
  const problem = "neither a Kubernetes object (no field kind) nor a KPNG state file (no field nodes or services)";
  return { ...emptyContent, problems: [{ path: [], problem }] };
}

/** Returns a problem, with both locations, for each object that the input files define twice; at most `maxReports`. */
function findDuplicates(documents: readonly ReadDocument[]): readonly InputProblem[] {
  const problems: InputProblem[] = [];
  const firsts = new Map<string, { readonly document: ReadDocument; readonly path: FieldPath }>();
  // Returns false if the name is already defined.
  const define = (name: string, document: ReadDocument, path: FieldPath): boolean => {
    const first = firsts.get(name);
    if (first === undefined) {
      firsts.set(name, { document, path });
    } else if (problems.length < maxReports) {
      const other = formatLocation(locate(first.document, first.path));
      problems.push({ ...locate(document, path), problem: `${name} is already defined at ${other}` });
    }
    return first === undefined;
  };
  for (const document of documents) {
    const { services, slices, nodes } = document.content;
    for (const { value, path } of nodes) define(`Node ${value.name}`, document, path);
    for (const { value, path } of services) define(`Service ${serviceKey(value)}`, document, path);
    for (const { value, path } of slices) {
      // As in a state file of KPNG.
      const isInsideService = path[0] === "services";
      const isNew = define(`EndpointSlice ${sliceKey(value)}`, document, path);
      // In a cluster the name of a slice is unique in its namespace; in a state file only within its Service.
      if (isNew && !isInsideService) define(`EndpointSlice ${value.namespace}/${value.name}`, document, path);
    }
  }
  return problems;
}

function makeNotes(documents: readonly ReadDocument[]): readonly InputNote[] {
  const notes: InputNote[] = [];
  for (const document of documents) {
    const all = document.content.notes;
    for (const { path, note } of all.slice(0, maxReports)) {
      notes.push({ ...locate(document, path), note: `${showPath(path)}: ${note}`.replace(/^: /, "") });
    }
    if (all.length > maxReports) notes.push({ file: document.file, note: `${all.length - maxReports} more notes` });
  }
  return [...notes, ...otherKindNotes(documents)];
}

/** One note for each ignored kind of a file. */
function otherKindNotes(documents: readonly ReadDocument[]): readonly InputNote[] {
  const counts = new Map<string, { readonly file: string; readonly kind: string; count: number }>();
  for (const { file, content } of documents) {
    for (const [kind, count] of content.otherKinds) {
      const entry = counts.get(`${file}\0${kind}`) ?? { file, kind, count: 0 };
      entry.count += count;
      counts.set(`${file}\0${kind}`, entry);
    }
  }
  return [...counts.values()].map(({ file, kind, count }) => ({
    file,
    note: `ignored ${count} of kind ${kind}`,
  }));
}
