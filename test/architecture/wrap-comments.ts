import { readFileSync, writeFileSync } from "node:fs";
import { findWideComments, maxWidth } from "./comment-width.ts";

/**
 * Wraps the comments that are too wide, in place:
 *
 *     node test/architecture/wrap-comments.ts FILE…
 *
 * Words beyond the width move to the next line if it continues the paragraph, else to a new line. A comment after code
 * stays as it is.
 */
for (const file of process.argv.slice(2)) {
  const text = readFileSync(file, "utf8");
  if (findWideComments({ file, text }).length > 0) writeFileSync(file, wrapComments(text));
}

function wrapComments(text: string): string {
  const wrapped: string[] = [];
  const waiting = text.split("\n");
  while (true) {
    const line = waiting.shift();
    if (line === undefined) return wrapped.join("\n");
    const [, indent = "", marker = "", words = ""] = /^(\s*)(\/\*\*|\*|\/\/|#) (.*)$/.exec(line) ?? [];
    const cut = line.lastIndexOf(" ", maxWidth);
    if (marker === "" || line.length <= maxWidth || cut <= indent.length + marker.length) {
      wrapped.push(line);
    } else if (marker === "/**") {
      // A docstring of one line becomes one of several.
      const end = words.endsWith("*/") ? [`${indent} */`] : [];
      waiting.unshift(`${indent}/**`, `${indent} * ${words.replace(/ \*\/$/, "")}`, ...end);
    } else {
      wrapped.push(line.slice(0, cut));
      const rest = line.slice(cut + 1);
      const start = `${indent}${marker} `;
      const next = waiting[0];
      // Items of lists are continued with an indentation of two.
      const isContinued = next?.startsWith(start) && /^(?![-|@#]|\d+\. |```)\S/.test(next.slice(start.length));
      const hang = /^(?:- | {2})/.test(words) ? "  " : "";
      if (isContinued && hang === "") waiting[0] = `${start}${rest} ${next?.slice(start.length)}`;
      else waiting.unshift(`${start}${hang}${rest}`);
    }
  }
}
