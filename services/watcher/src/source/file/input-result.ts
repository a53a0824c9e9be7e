import type { FieldPath } from "../decode/decoded.ts";
import type { ClusterObjects } from "../source.ts";
import type { DocumentContent } from "./content/document-content.ts";
import type { SourceDocument } from "./parse/parsed-document.ts";

/** A place in the inputs; line and column count from 1 and are absent where the whole file is meant. */
export interface Place {
  readonly file: string;
  readonly line?: number | undefined;
  readonly column?: number | undefined;
}

export interface InputProblem extends Place {
  readonly problem: string;
}

export interface InputNote extends Place {
  readonly note: string;
  /** "debug" for what is in order. */
  readonly level: "info" | "debug";
}

/** What the inputs hold: everything, or what is wrong; never a part. */
export type InputResult =
  | { readonly kind: "ok"; readonly objects: ClusterObjects; readonly notes: readonly InputNote[] }
  | { readonly kind: "bad"; readonly problems: readonly InputProblem[] };

/** A document of a file, with what it holds. */
export interface ReadDocument {
  readonly file: string;
  readonly document: SourceDocument;
  readonly content: DocumentContent;
}

/** Says where a part of a document is. */
export type Locate = (document: ReadDocument, path: FieldPath) => Place;

/** *Shape:* `file:line:column`, as far as it is known. */
export function showPlace({ file, line, column }: Place): string {
  return [file, line, column].filter((part) => part !== undefined).join(":");
}
