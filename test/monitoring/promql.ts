/** Metric in an expression, with the labels that select its series. */
export interface Selector {
  readonly metric: string;
  readonly matchers: readonly { readonly label: string; readonly operator: string; readonly value: string }[];
}

/** Metrics and labels that an expression uses. */
export interface Asked {
  readonly selectors: readonly Selector[];
  /** Labels that group or join results. */
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
 * Returns the metrics that a PromQL expression uses. promtool checks the rest of the expression.
 *
 * *Shape:* no subqueries with `@` and no names in quotes; Grafana's variables occur only in strings and ranges.
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
