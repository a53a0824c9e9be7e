/** What a backend does differently, by the name of a case or of a deviation, with the reason. */
export type Exceptions = ReadonlyMap<string, string>;

/**
 * Parses a file of exceptions: a name per line, and the reason after the first space; a line that begins with `#` is a
 * comment. Errors: throws for a name that is not known, or a line without a reason.
 */
export function parseExceptions(text: string, isKnown: (name: string) => boolean): Exceptions {
  const lines = text
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "" && !line.startsWith("#"));
  return new Map(
    lines.map((line) => {
      const [, name = "", reason = ""] = /^(\S+)\s*(.*)$/.exec(line) ?? [];
      if (!isKnown(name)) throw new Error(`"${name}" is neither a case nor a deviation`);
      if (reason === "") throw new Error(`the exception ${name} has no reason`);
      return [name, reason];
    }),
  );
}
