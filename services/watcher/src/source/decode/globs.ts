import { ProcessError } from "@kpng/process/process-error.ts";

/**
 * Returns a predicate that is true for texts which one of the globs matches as a whole.
 *
 * *Shape:* `*` any characters, `?` one, `[abc]` `[!abc]` `[a-z]` `[!a-z]` one of (not) these, `{a,b*}` alternatives,
 * which may nest, `\` makes the next character an ordinary one. No character separates: `*` matches a slash too.
 *
 * Source: gobwas/glob, which KPNG's --with-service-labels and its like use.
 *
 * Errors: BAD_OPTION for a malformed glob.
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
      if (next === undefined) throw badGlob(glob, "nothing follows the last \\");
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
  if (depth > 0) throw badGlob(glob, "a { is not closed");
  return pattern;
}

function endOfClass(characters: readonly string[], start: number, glob: string): number {
  for (let at = start + 1; at < characters.length; at++) {
    if (characters[at] === "\\") at++;
    else if (characters[at] === "]") return at;
  }
  throw badGlob(glob, "a [ is not closed");
}

function toClass(inside: readonly string[], glob: string): string {
  const isNot = inside[0] === "!";
  const content = isNot ? inside.slice(1) : inside;
  const not = isNot ? "^" : "";
  const [low, dash, high] = content;
  // A class is one range or a list: in "[a-z0]" gobwas/glob finds a malformed range, and so do we.
  if (low !== undefined && low !== "\\" && dash === "-" && high !== undefined) {
    if (content.length !== 3) throw badGlob(glob, "a class is either one range or a list of characters");
    if (low > high) throw badGlob(glob, `the range ${low}-${high} is empty`);
    return `[${not}${literal(low)}-${literal(high)}]`;
  }
  const list = content.filter((character, at) => character !== "\\" || content[at - 1] === "\\");
  if (list.length === 0) throw badGlob(glob, "a class is empty");
  return `[${not}${list.map(literal).join("")}]`;
}

function literal(character: string): string {
  return `\\u{${character.codePointAt(0)?.toString(16)}}`;
}

function badGlob(glob: string, problem: string): ProcessError {
  return new ProcessError("BAD_OPTION", `"${glob}" is not a glob: ${problem}`);
}
