import type { FieldPath } from "../../decode/decoded.ts";

/** A place in a file; lines and columns count from 1. */
export interface Position {
  readonly line?: number | undefined;
  readonly column?: number | undefined;
}

/** Something wrong in a file, and where. */
export interface TextProblem extends Position {
  readonly problem: string;
}

/** One document of a file: JSON, or a part of YAML between `---` lines. */
export interface SourceDocument {
  /** What JSON.parse would give; null for an empty document. */
  readonly value: unknown;
  /** Of the text, in characters. */
  readonly length: number;
  /** The place of the last step of a path that exists. It may parse the text again: only for what is to be reported. */
  locate(path: FieldPath): Position;
}

export type ParsedDocuments =
  | { readonly kind: "ok"; readonly documents: readonly SourceDocument[] }
  | { readonly kind: "bad"; readonly problems: readonly TextProblem[] };
