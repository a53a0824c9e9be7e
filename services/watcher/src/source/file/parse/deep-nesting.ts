/** Maximum nesting in one line of YAML. Kubernetes objects have about ten levels. */
const maxDepth = 256;

const openers = new Set(["[", "{"]);
const closers = new Set(["]", "}"]);

/**
 * Returns the offset at which a text nests more than 256 brackets or list indicators (`[[[[`, `- - - -`); undefined if
 * none does. `parseAnyYaml` asks before it parses: package yaml takes 12 s and 0.9 GB to reject 800 KB of brackets.
 *
 * Nesting by indentation needs no limit: a text grows with the square of its depth. Brackets within quotes count too,
 * because only a parser knows the quotes; a text with 256 more opening than closing ones is not a manifest.
 *
 * Pure; O(length). Separate from `parseAnyYaml`, because it must work without a parser.
 */
export function findDeepNesting(text: string): number | undefined {
  let brackets = 0;
  let indicators = 0;
  for (let offset = 0; offset < text.length; offset++) {
    const character = text[offset] ?? "";
    if (openers.has(character)) brackets++;
    else if (closers.has(character)) brackets = Math.max(0, brackets - 1);
    if (character === "-" || character === "?") indicators++;
    else if (character !== " ") indicators = 0;
    // Several dashes in a row are no indicators.
    if (character === "-" && text[offset + 1] !== " ") indicators = 0;
    if (brackets > maxDepth || indicators > maxDepth) return offset;
  }
  return undefined;
}
