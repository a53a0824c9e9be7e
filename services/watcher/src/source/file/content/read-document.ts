import { isRecord } from "@kpng/model/is-record.ts";
import type { DecodeOptions } from "../../decode/decode-options.ts";
import { type DocumentContent, emptyContent } from "./document-content.ts";
import { readManifests } from "./read-manifests.ts";
import { readState } from "./read-state.ts";

/**
 * Decodes one document: a Kubernetes object, a KPNG state file, or nothing if it is empty. `readTexts` calls it for
 * each document of each input file of `kpng file`. It only chooses between `readManifests` and `readState`, which know
 * one format each. Pure.
 */
export function readDocument(value: unknown, options: DecodeOptions): DocumentContent {
  if (value === null || value === undefined) return emptyContent;
  if (isRecord(value)) {
    if ("kind" in value || "apiVersion" in value) return readManifests(value, options);
    if ("nodes" in value || "services" in value || Object.keys(value).length === 0) return readState(value);
  }
  const problem = "neither a Kubernetes object (no field kind) nor a KPNG state file (no field nodes or services)";
  return { ...emptyContent, problems: [{ path: [], problem }] };
}
