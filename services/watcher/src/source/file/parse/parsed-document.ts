import type { FieldPath } from "../../decode/decoded.ts";

/**
 * One parsed document of a file: JSON, or the YAML between two `---` lines, with positions by which problems are
 * reported. `parseDocuments` returns it to `readTexts`. Separate, because `parseAnyYaml` returns it, too.
 */
export interface ParsedDocument {
  /** Value as from JSON.parse; null for an empty document. */
  readonly value: unknown;
  /** Length of the text, in characters. */
  readonly length: number;
  /**
   * Returns the position of a field, or of its nearest existing ancestor. *Cost:* may parse the text again, so call it
   * only for what is reported.
   */
  locate(path: FieldPath): TextPosition;
}

/** Position in a text, counted from 1. */
export interface TextPosition {
  readonly line?: number | undefined;
  readonly column?: number | undefined;
}

/** Syntax error of a text. */
export interface TextProblem extends TextPosition {
  readonly problem: string;
}

/** Result of parsing a file. */
export type ParsedDocuments =
  | { readonly kind: "ok"; readonly documents: readonly ParsedDocument[] }
  | { readonly kind: "bad"; readonly problems: readonly TextProblem[] };
