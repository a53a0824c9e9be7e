/** A metric in an expression, with what its series are chosen by. */
export interface Selector {
  readonly metric: string;
  readonly matchers: readonly { readonly label: string; readonly operator: string; readonly value: string }[];
}

/** What an expression asks for. */
export interface Asked {
  readonly selectors: readonly Selector[];
  /** Labels that results are grouped or joined by. */
  readonly groupings: readonly string[];
}

const words = new Set([
  "and",
  "or",
  "unless",
  "by",
  "on",
  "without",
  "ignoring",
  "group_left",
  "group_right",
  "offset",
  "bool",
]);

/**
 * Reads out of an expression of PromQL which metrics it asks for; what it does with them is left to promtool.
 *
 * *Shape:* no subqueries with `@`, no names in quotes; Grafana's variables stand inside strings and ranges only.
 */
export function readPromql(expr: string): Asked {
  const groupings: string[] = [];
  const rest = expr.replaceAll(/\b(by|on|without|ignoring)\s*\(([^)]*)\)/g, (_all, _word, names: string) => {
    groupings.push(...names.split(",").map((name) => name.trim()));
    return " ";
  });
  const selectors = [...rest.matchAll(/([a-zA-Z_][\w:]*)\s*(\{[^}]*\}|\[[^\]]*\]|\()?|"[^"]*"|\[[^\]]*\]/g)].flatMap(
    ([, name, after = ""]) => {
      if (name === undefined || after === "(" || words.has(name)) return [];
      return [{ metric: name, matchers: after.startsWith("{") ? readMatchers(after) : [] }];
    },
  );
  return { selectors, groupings };
}

function readMatchers(text: string): Selector["matchers"] {
  return [...text.matchAll(/([a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*"([^"]*)"/g)].map(
    ([, label = "", operator = "", value = ""]) => ({ label, operator, value }),
  );
}
