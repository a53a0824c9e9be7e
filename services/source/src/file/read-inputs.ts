import { isRecord } from "@kpng/model/narrowing.ts";
import type { DecodeOptions } from "../decode/decoded.ts";
import type { ClusterObjects } from "../source.ts";
import { InputContent, type InputProblem, type Place } from "./input-content.ts";
import type { LoadedInput } from "./input-files.ts";
import { parseDocuments } from "./parse-documents.ts";
import { addManifest } from "./read-manifests.ts";
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
