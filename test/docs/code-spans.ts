import type { Document } from "./documents.ts";

/** Code in a document: a span of a line, or a line of a block. */
interface CodeSpan {
  /** "" for a span within a line, else the word after the fence, "text" if there is none. */
  readonly language: string;
  readonly text: string;
}

/** Returns the code of a document, in order; comments of HTML are skipped. */
export function codeSpans({ text }: Document): readonly CodeSpan[] {
  const parts = text.replaceAll(/<!--[\s\S]*?-->/g, "").split(/^ *```(.*)$/gm);
  return parts.flatMap((part, index) => {
    // The parts alternate: text, fence, lines of the block, fence.
    switch (index % 4) {
      case 0:
        return [...part.matchAll(/`([^`\n]+)`/g)].map(([, span = ""]) => ({ language: "", text: span }));
      case 2:
        return linesOf(part).map((line) => ({ language: parts[index - 1]?.trim() || "text", text: line }));
      default:
        return [];
    }
  });
}

/** A line that ends in a backslash is one with the next. */
function linesOf(block: string): readonly string[] {
  return block.replaceAll(/\\\n\s*/g, " ").split("\n");
}
