import { ProcessError } from "@kpng/process/process-error.ts";

/**
 * Returns a predicate that is true for text that fully matches one of the globs. `makeDecodeOptions` calls it for
 * options such as --with-service-labels, whose values are globs of label names. Separate from it, because globs have
 * nothing to do with Kubernetes.
 *
 * *Syntax:* `*` any characters, also slashes; `?` one character; `[abc]` `[!abc]` `[a-z]` `[!a-z]` a character class or
 * its negation, either a list of characters or a single range; `{a,b*}` alternatives, which may be nested; `\` quotes
 * the next character.
 *
 * Source: gobwas/glob, which KPNG uses for the same options.
 *
 * Errors: BAD_OPTION for an invalid glob.
 */
export function compileGlobs(globs: readonly string[]): (text: string) => boolean {
  const patterns = globs.map((glob) => new RegExp(`^(?:${toPattern(glob)})$`, "su"));
  return (text) => patterns.some((pattern) => pattern.test(text));
}

function toPattern(glob: string): string {
  const characters = [...glob];
  let pattern = "";
  let depth = 0;
  for (let at = 0; at < characters.length; at++) {
    const character = characters[at] ?? "";
    if (character === "*") {
      pattern += ".*";
    } else if (character === "?") {
      pattern += ".";
    } else if (character === "\\") {
      at++;
      const next = characters[at];
      if (next === undefined) throw badGlob(glob, "no character after the last \\");
      pattern += literal(next);
    } else if (character === "[") {
      const end = endOfClass(characters, at, glob);
      pattern += toClass(characters.slice(at + 1, end), glob);
      at = end;
    } else if (character === "{") {
      depth++;
      pattern += "(?:";
    } else if (character === "}" && depth > 0) {
      depth--;
      pattern += ")";
    } else if (character === "," && depth > 0) {
      pattern += "|";
    } else {
      pattern += literal(character);
    }
  }
  if (depth > 0) throw badGlob(glob, "unclosed {");
  return pattern;
}

function endOfClass(characters: readonly string[], start: number, glob: string): number {
  for (let at = start + 1; at < characters.length; at++) {
    if (characters[at] === "\\") at++;
    else if (characters[at] === "]") return at;
  }
  throw badGlob(glob, "unclosed [");
}

function toClass(inside: readonly string[], glob: string): string {
  const isNegated = inside[0] === "!";
  const content = isNegated ? inside.slice(1) : inside;
  const caret = isNegated ? "^" : "";
  const [low, dash, high] = content;
  // As in gobwas/glob, a class is either one range or a list: "[a-z0]" is invalid.
  if (low !== undefined && low !== "\\" && dash === "-" && high !== undefined) {
    if (content.length !== 3) throw badGlob(glob, "a character class is either one range or a list of characters");
    if (low > high) throw badGlob(glob, `empty range ${low}-${high}`);
    return `[${caret}${literal(low)}-${literal(high)}]`;
  }
  const list = content.filter((character, at) => character !== "\\" || content[at - 1] === "\\");
  if (list.length === 0) throw badGlob(glob, "empty character class");
  return `[${caret}${list.map(literal).join("")}]`;
}

function literal(character: string): string {
  return `\\u{${character.codePointAt(0)?.toString(16)}}`;
}

function badGlob(glob: string, problem: string): ProcessError {
  return new ProcessError("BAD_OPTION", `"${glob}" is not a glob: ${problem}`);
}
