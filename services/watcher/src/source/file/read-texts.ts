import type { DecodeOptions } from "../decode/decode-options.ts";
import { showPath } from "../decode/decoded.ts";
import { readDocument } from "./content/read-document.ts";
import { findDuplicates } from "./find-duplicates.ts";
import type { InputText } from "./input/input-files.ts";
import type { InputNote, InputProblem, InputResult, Locate, ReadDocument } from "./input-result.ts";
import { parseDocuments } from "./parse/parse-documents.ts";

/**
 * Parses and decodes the texts of all input files. No object may be defined twice. With `skipsBad`, invalid objects are
 * left out, and the last of several objects with one name counts; but a text that cannot be parsed still makes the
 * whole input invalid, and so does an input without any valid object. Pure.
 *
 * `loadInput` calls it. Separate from it, because it touches no files.
 */
export function readTexts(texts: readonly InputText[], options: DecodeOptions, skipsBad = false): InputResult {
  const problems: InputProblem[] = [];
  const documents: ReadDocument[] = [];
  let isReadable = true;
  for (const { file, text } of texts) {
    const parsed = parseDocuments(text);
    if (parsed.kind === "bad") {
      problems.push(...parsed.problems.slice(0, maxReports).map((problem) => ({ file, ...problem })));
      isReadable = false;
      continue;
    }
    for (const document of parsed.documents) {
      documents.push({ file, document, content: readDocument(document.value, options) });
    }
  }
  const locate = makeLocate(locateBudget.problems);
  for (const document of documents) {
    const all = document.content.problems;
    for (const { path, problem } of all.slice(0, maxReports)) {
      const field = showPath(path);
      problems.push({ ...locate(document, path), problem: field === "" ? problem : `${field}: ${problem}` });
    }
    if (all.length > maxReports)
      problems.push({ file: document.file, problem: `${all.length - maxReports} more problems` });
  }
  problems.push(...findDuplicates(documents, locate, maxReports));
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

/** Characters that may be parsed again to find line numbers: for problems (2 s of work) and for notes. */
const locateBudget = { problems: 100_000_000, notes: 5_000_000 };

/** Limit for the problems, and for the notes, of one document. */
const maxReports = 20;

/** Returns a function that finds line numbers until `budget` characters have been parsed, and then only file names. */
function makeLocate(budget: number): Locate {
  let left = budget;
  return ({ file, document }, path) => {
    left -= document.length;
    return left < 0 ? { file } : { file, ...document.locate(path) };
  };
}

function makeNotes(documents: readonly ReadDocument[]): readonly InputNote[] {
  const locate = makeLocate(locateBudget.notes);
  const services = new Set<string>();
  for (const { content } of documents) {
    for (const { value } of content.services) services.add(`${value.namespace}/${value.name}`);
  }
  const notes: InputNote[] = [];
  for (const document of documents) {
    const { file, content } = document;
    for (const { path, note } of content.notes.slice(0, maxReports)) {
      notes.push({ ...locate(document, path), level: "info", note: `${showPath(path)}: ${note}`.replace(/^: /, "") });
    }
    const more = content.notes.length - maxReports;
    if (more > 0) notes.push({ file, level: "info", note: `${more} more notes` });
    const strays = content.slices.filter(({ value }) => !services.has(`${value.namespace}/${value.serviceName}`));
    for (const { path, value } of strays.slice(0, maxReports)) {
      const note = `EndpointSlice ${value.name} belongs to Service ${value.serviceName}, which does not exist`;
      notes.push({ ...locate(document, path), level: "debug", note });
    }
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
    level: "info",
    note: `ignored ${count} of kind ${kind}`,
  }));
}
