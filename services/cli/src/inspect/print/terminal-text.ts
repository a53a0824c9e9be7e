/**
 * Characters that change how a terminal shows the text around them: control characters (also the C1 set, in which one
 * character begins an escape sequence), line and paragraph separators, and the marks of bidirectional text.
 */
const unsafe = /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]+/gu;

/** Line breaks and tabs, which our own output consists of. */
const layout = /^[\n\t]+$/;

/**
 * Returns the text in one line: each run of unsafe characters becomes a space. `formatTable` calls it for each cell.
 * The functions of this file are separate from `format.ts`, because they concern texts that another machine chose.
 */
export function oneLine(text: string): string {
  return text.replaceAll(unsafe, " ").trim();
}

/**
 * Returns text without unsafe characters, except line breaks and tabs. Commands that print answers of a watcher call it
 * for all their output, and `withPlainErrors` for errors.
 */
export function terminalText(text: string): string {
  return text.replaceAll(unsafe, (run) => (layout.test(run) ? run : run.replaceAll(/[^\n\t]+/g, " ")));
}

/** Returns JSON with unsafe characters as `\u…` escapes. JSON.stringify escapes those below U+0020 only. */
export function terminalJson(json: string): string {
  return json.replaceAll(unsafe, (run) =>
    run.replaceAll(/[^\n\t]/gu, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`),
  );
}

/** Whether YAML must write a text in double quotes, which can contain escapes. */
export function hasUnsafe(text: string): boolean {
  return text.replaceAll(/[\n\t]/g, "").search(unsafe) >= 0;
}
