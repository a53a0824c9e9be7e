import type { JsonValue } from "@bufbuild/protobuf";
import { ProcessError } from "@kpng/process/process-error.ts";
import { InvalidArgumentError } from "commander";
import { JSONPath } from "jsonpath-plus";
import type { Column } from "./table.ts";

/** A template of `-o jsonpath=…`, parsed. `range` repeats its body for each value of the path. */
type Part =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "path"; readonly path: string }
  | { readonly kind: "range"; readonly path: string; readonly body: readonly Part[] };

/**
 * Parses a template as kubectl does: `{.items[*].name}`, `{range .items[*]}{.name}{"\n"}{end}`, text between braces.
 * Returns a function from the printed value to the text.
 *
 * `output.ts` uses this file for `-o jsonpath`, `-o custom-columns` and `--sort-by`, and `RowSelection` for
 * `--field-selector`. Separate, because only this file uses the library, which evaluates paths; the braces around a
 * path are kubectl's.
 *
 * Errors: InvalidArgumentError for a template with braces that do not match. An invalid path is found only when it is
 * applied.
 */
export function parseTemplate(template: string): (root: JsonValue) => string {
  const tokens = template.match(/\{(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^{}"'])*\}|[^{}]+|[{}]/g) ?? [];
  const parts = parseParts(tokens.values(), false, template);
  return (root) => fill(parts, root);
}

/** Returns the values at a path such as `.name`, `{.ports[0].port}` or `endpoints.ready`. */
export function valuesAt(path: string, root: JsonValue): readonly JsonValue[] {
  return evaluate(toPath(path.replace(/^\{(.*)\}$/, "$1")), root);
}

/**
 * Parses the columns of `-o custom-columns=NAME:.name,PORT:.ports[*].port`, for rows as JSON. Errors:
 * InvalidArgumentError.
 */
export function parseColumns(spec: string): readonly Column<JsonValue>[] {
  return spec.split(",").map((column) => {
    const at = column.indexOf(":");
    const title = column.slice(0, at);
    const path = column.slice(at + 1);
    if (at < 1 || path === "") {
      throw new InvalidArgumentError(`"${column}" is not a column: write TITLE:.field, for example NAME:.name`);
    }
    return { title, cell: (row) => valuesAt(path, row).map(formatValue).join(","), placeholder: "<none>" };
  });
}

function parseParts(tokens: Iterator<string>, isInRange: boolean, template: string): readonly Part[] {
  const parts: Part[] = [];
  for (let next = tokens.next(); next.done !== true; next = tokens.next()) {
    const token = next.value;
    if (token === "{" || token === "}") throw new InvalidArgumentError(`"${template}" has a brace without its partner`);
    const code = /^\{(.*)\}$/s.exec(token)?.[1]?.trim();
    const quoted = /^(["'])(.*)\1$/s.exec(code ?? "");
    const range = /^range\s+(.+)$/.exec(code ?? "");
    if (code === undefined) parts.push({ kind: "text", text: token });
    else if (quoted !== null) parts.push({ kind: "text", text: fromEscapes(quoted[2] ?? "") });
    else if (range !== null) {
      parts.push({ kind: "range", path: toPath(range[1] ?? ""), body: parseParts(tokens, true, template) });
    } else if (code === "end") {
      if (isInRange) return parts;
      throw new InvalidArgumentError(`"${template}" has {end} without {range}`);
    } else parts.push({ kind: "path", path: toPath(code) });
  }
  if (isInRange) throw new InvalidArgumentError(`"${template}" has {range} without {end}`);
  return parts;
}

function fill(parts: readonly Part[], root: JsonValue): string {
  return parts
    .map((part) => {
      if (part.kind === "text") return part.text;
      const values = evaluate(part.path, root);
      return part.kind === "path"
        ? values.map(formatValue).join(" ")
        : values.map((value) => fill(part.body, value)).join("");
    })
    .join("");
}

/** kubectl's names of fields, and ours: rows are flat. */
const kubernetesFields: readonly (readonly [RegExp, string])[] = [
  [/\.metadata\.(?=(name|namespace|labels)\b)/g, "."],
  [/\.spec\.(?=(type|ports|internalTrafficPolicy|externalTrafficPolicy)\b)/g, "."],
  [/\.spec\.clusterIP\b/g, ".clusterIps[0]"],
  [/\.spec\.(cluster|external)IPs\b/g, ".$1Ips"],
  [/\.spec\.nodeName\b/g, ".node"],
];

/**
 * Returns the path in our rows for a path in kubectl's objects: `.name` for `.metadata.name`. Others stay as they are.
 */
export function ownPath(path: string): string {
  return kubernetesFields.reduce((text, [pattern, own]) => text.replace(pattern, own), path);
}

/** Makes a path of the library from kubectl's, where the root may be written as `$`, `@` or not at all. */
function toPath(text: string): string {
  const path = text.trim().replace(/^[$@]/, "");
  return ownPath(path === "" || path.startsWith(".") || path.startsWith("[") ? `$${path}` : `$.${path}`);
}

/** Expressions in filters run no code. Errors: BAD_OPTION if the library cannot read the path. */
function evaluate(path: string, json: JsonValue): readonly JsonValue[] {
  // The library takes only objects and arrays.
  if (json === null || typeof json !== "object") return path === "$" ? [json] : [];
  try {
    return JSONPath({ path, json, eval: "safe" });
  } catch (error) {
    throw new ProcessError("BAD_OPTION", `"${path}" is not a JSONPath`, { cause: error });
  }
}

function formatValue(value: JsonValue): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

function fromEscapes(text: string): string {
  return text.replaceAll(/\\(.)/g, (_all, one: string) => ({ n: "\n", t: "\t", r: "\r" })[one] ?? one);
}
