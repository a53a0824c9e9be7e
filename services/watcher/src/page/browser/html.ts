/**
 * HTML that {@link html} made: the only kind of text that the status page parses as HTML. The sections make it, and
 * `setHtml` shows it. Separate from `dom.ts`, because this file needs no document.
 */
export class Html {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** Values of a template: text is escaped, {@link Html} is not. Nothing is shown for undefined and false. */
export type HtmlValue = string | number | Html | undefined | false | readonly HtmlValue[];

/**
 * Template tag for HTML and SVG. Every value is escaped, for text and for attributes in double quotes, so that no name,
 * error or other text of the cluster can become an element, an attribute or a script.
 */
export function html(parts: TemplateStringsArray, ...values: readonly HtmlValue[]): Html {
  return new Html(parts.map((part, index) => (index === 0 ? part : encode(values[index - 1]) + part)).join(""));
}

function encode(value: HtmlValue): string {
  if (value === undefined || value === false) return "";
  if (value instanceof Html) return value.text;
  if (typeof value === "object") return value.map(encode).join("");
  return String(value).replace(/[&<>"']/g, (character) => entities[character] ?? "");
}

const entities: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};
