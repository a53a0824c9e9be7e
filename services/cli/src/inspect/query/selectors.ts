import type { DescMessage, JsonObject, MessageShape } from "@bufbuild/protobuf";
import type { OptionSpec } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { InvalidArgumentError } from "commander";
import type { Options } from "../../context/command-context.ts";
import { ownPath, valuesAt } from "../print/json-path.ts";
import { plainMessage } from "../print/plain-message.ts";

/** True if an object with these labels is selected. */
type LabelSelector = (labels: Readonly<Record<string, string>>) => boolean;

/** One condition of `--field-selector`. */
interface FieldCondition {
  readonly path: string;
  readonly value: string;
  readonly isEqual: boolean;
}

/** `-l`, for rows that have labels. */
export const labelSelectorOption: OptionSpec = {
  flags: "-l, --selector <labels>",
  description: "only objects with these labels, as in kubectl: a=b, a!=b, a, !a, a in (b,c), a notin (b,c)",
  parse: (text) => {
    parseLabelSelector(text);
    return text;
  },
};

/** `--field-selector`, for every list. */
export const fieldSelectorOption: OptionSpec = {
  flags: "--field-selector <fields>",
  description: "only rows with these fields of -o json, for example state=failing,zone!=za",
  parse: (text) => {
    parseFieldSelector(text);
    return text;
  },
};

const name = "[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?";
const value = "(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?";
const setCondition = new RegExp(String.raw`^(${name})\s+(in|notin)\s*\(([^()]*)\)$`);
const equalCondition = new RegExp(`^(${name})\\s*(==|=|!=)\\s*(${value})$`);
const presence = new RegExp(String.raw`^(!?)\s*(${name})$`);

/**
 * Parses a label selector as kubectl does. An object without the label matches `a!=b` and `a notin (b)`.
 *
 * Errors: InvalidArgumentError, with the part that is invalid. Source: k8s.io/apimachinery `labels.Parse`.
 */
export function parseLabelSelector(text: string): LabelSelector {
  // Commas inside parentheses separate values.
  const conditions = text.split(/,(?![^(]*\))/).map((part) => parseLabelCondition(part.trim()));
  return (labels) => conditions.every((condition) => condition(labels));
}

function parseLabelCondition(text: string): LabelSelector {
  const [, setName, how, list] = setCondition.exec(text) ?? [];
  if (setName !== undefined) {
    const values = new Set((list ?? "").split(",").map((one) => one.trim()));
    return (labels) => isIn(values, labels[setName]) === (how === "in");
  }
  const [, equalName, operator, wanted = ""] = equalCondition.exec(text) ?? [];
  if (equalName !== undefined) return (labels) => (labels[equalName] === wanted) === (operator !== "!=");
  const [, not, label] = presence.exec(text) ?? [];
  if (label !== undefined) return (labels) => Object.hasOwn(labels, label) === (not === "");
  throw new InvalidArgumentError(
    `"${text}" is not a label selector: write a=b, a!=b, a, !a, a in (b,c) or a notin (b)`,
  );
}

function isIn(values: ReadonlySet<string>, text: string | undefined): boolean {
  return text !== undefined && values.has(text);
}

function parseFieldSelector(text: string): readonly FieldCondition[] {
  return text.split(",").map((part) => {
    const [, path, operator, wanted] = /^\s*\.?([A-Za-z][\w.[\]]*)\s*(==|=|!=)(.*)$/.exec(part) ?? [];
    if (path === undefined || wanted === undefined) {
      throw new InvalidArgumentError(`"${part}" is not a field selector: write field=value or field!=value`);
    }
    return { path: ownPath(`.${path}`).slice(1), value: wanted.trim(), isEqual: operator !== "!=" };
  });
}

/**
 * Selects rows by `--selector` and `--field-selector`. `runList` and `kpng get view` create one for each run. The
 * watcher sends all rows: it need not know these options, and `--field-selector` works on any field. Separate from
 * `filter-options.ts`, whose options are fields of the request.
 */
export class RowSelection<D extends DescMessage> {
  readonly #schema: D;
  readonly #labels: LabelSelector | undefined;
  readonly #fields: readonly FieldCondition[];
  /** Keys of the rows that a watch has shown; empty without a selection. */
  readonly #shown = new Set<string>();

  /** Errors: BAD_OPTION for a field that the rows do not have. */
  constructor(schema: D, { selector, fieldSelector }: Options) {
    this.#schema = schema;
    this.#labels = selector === undefined ? undefined : parseLabelSelector(String(selector));
    this.#fields = fieldSelector === undefined ? [] : parseFieldSelector(String(fieldSelector));
    const known = schema.fields.map(({ jsonName }) => jsonName);
    const wrong = this.#fields.find(({ path }) => !known.includes(/^\w+/.exec(path)?.[0] ?? ""));
    if (wrong === undefined) return;
    throw new ProcessError("BAD_OPTION", `--field-selector: no field "${wrong.path}"; there are ${known.join(", ")}`);
  }

  /** True if it selects by labels. */
  get hasLabels(): boolean {
    return this.#labels !== undefined;
  }

  get isAll(): boolean {
    return this.#labels === undefined && this.#fields.length === 0;
  }

  keep(rows: readonly MessageShape<D>[]): readonly MessageShape<D>[] {
    return this.isAll ? rows : rows.filter((row) => this.#matches(plainMessage(this.#schema, row)));
  }

  /** Selects from a message of a watch. A row that no longer matches counts as deleted. */
  follow(
    rows: readonly MessageShape<D>[],
    deleted: readonly string[],
    keyOf: (row: MessageShape<D>) => string,
  ): { readonly rows: readonly MessageShape<D>[]; readonly deleted: readonly string[] } {
    if (this.isAll) return { rows, deleted };
    const kept = this.keep(rows);
    const keptKeys = new Set(kept.map(keyOf));
    const gone = [...deleted, ...rows.map(keyOf).filter((key) => !keptKeys.has(key))];
    const wereShown = gone.filter((key) => this.#shown.delete(key));
    for (const key of keptKeys) this.#shown.add(key);
    return { rows: kept, deleted: wereShown };
  }

  #matches(row: JsonObject): boolean {
    const labels = (row.labels ?? {}) as Readonly<Record<string, string>>;
    const hasLabels = this.#labels?.(labels) ?? true;
    return hasLabels && this.#fields.every((field) => textAt(field.path, row).includes(field.value) === field.isEqual);
  }
}

/** Values of a field as texts; the elements of a list. A row without the field has the value "". */
function textAt(path: string, row: JsonObject): readonly string[] {
  const values = valuesAt(path, row).flat();
  return values.length === 0 ? [""] : values.map((one) => (typeof one === "string" ? one : JSON.stringify(one)));
}
