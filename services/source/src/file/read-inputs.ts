import { isRecord } from "@kpng/model/narrowing.ts";
import type { DecodeOptions } from "../decode/decoded.ts";
import type { ClusterObjects } from "../source.ts";
import { InputContent, type InputProblem, type Place } from "./input-content.ts";
import { type InputFilesOptions, type InputText, listInputFiles, readInputFiles } from "./input-files.ts";
import { parseDocuments } from "./parse-documents.ts";
import { ManifestReader } from "./read-manifests.ts";
import { readState } from "./read-state.ts";

interface LoadInputOptions extends InputFilesOptions {
  readonly decode: DecodeOptions;
  /** True to leave out invalid objects. Default false. */
  readonly skipsBad?: boolean | undefined;
}

/** The contents of all files, loaded but not yet parsed. */
export interface LoadedInput {
  readonly fileCount: number;
  /** Equal for equal files with equal contents. */
  readonly digest: string;
  /**
   * True if a file is empty or if there is no file. Inputs that are being written are often in this state for a moment.
   */
  readonly isEmptied: boolean;
  /** Parses and decodes the inputs. */
  read(): InputResult;
}

/**
 * Loads the contents of all inputs: files, folders and standard input ("-"). Without `skipsBad`, one problem makes the
 * whole input invalid, because part of a cluster must not be served.
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
 * Parses and decodes the contents of all input files. No object may be defined twice. With `skipsBad`, invalid and
 * duplicate objects are omitted, but the input is still invalid if a file cannot be parsed or if no object is valid.
 * Pure.
 */
export function readTexts(texts: readonly InputText[], options: DecodeOptions, skipsBad = false): InputResult {
  const content = new InputContent();
  const unreadable: InputProblem[] = [];
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
      new ManifestReader(options, content).add(value, place);
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
