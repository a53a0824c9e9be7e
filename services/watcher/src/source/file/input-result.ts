import type { FieldPath } from "../decode/decoded.ts";
import type { ClusterObjects } from "../source.ts";
import type { DocumentContent } from "./content/document-content.ts";
import type { ParsedDocument, TextPosition } from "./parse/parsed-document.ts";

/**
 * Result of reading all inputs: all objects, or all problems. `skipped` has the problems of objects and parts that were
 * left out. `readTexts` makes it for `fileSource`, which applies the objects, or keeps its last good state and reports
 * the problems. Separate, because all functions that read inputs share these types.
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
export interface InputLocation extends TextPosition {
  readonly file: string;
}

/** Something in the inputs that makes them invalid. */
export interface InputProblem extends InputLocation {
  readonly problem: string;
}

/** Something in the inputs that is ignored or unusual, for the log. */
export interface InputNote extends InputLocation {
  readonly note: string;
  /** Log level; "debug" for what is common in valid clusters. */
  readonly level: "info" | "debug";
}

/** A document of a file and its decoded content. */
export interface ReadDocument {
  readonly file: string;
  readonly document: ParsedDocument;
  readonly content: DocumentContent;
}

/** Returns the location of a field of a document. */
export type Locate = (document: ReadDocument, path: FieldPath) => InputLocation;

/** Formats a location. *Shape:* `file:line:column`, as far as it is known. */
export function formatLocation({ file, line, column }: InputLocation): string {
  return [file, line, column].filter((part) => part !== undefined).join(":");
}
