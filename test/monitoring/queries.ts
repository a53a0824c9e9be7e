import { readFileSync } from "node:fs";
import { parse } from "yaml";

/** Rule of deploy/monitoring/rules.yaml. */
interface AlertRule {
  readonly alert: string;
  readonly expr: string;
  readonly for?: string | undefined;
  readonly labels: { readonly severity: string };
  readonly annotations: { readonly summary: string; readonly description: string; readonly runbook: string };
}

/** Expression with its location, and the labels that its texts refer to. */
interface PlacedQuery {
  readonly place: string;
  readonly expr: string;
  readonly namedLabels: readonly string[];
}

export function readRules(): readonly AlertRule[] {
  const { groups } = parse(readFileSync("deploy/monitoring/rules.yaml", "utf8")) as {
    groups: { rules: AlertRule[] }[];
  };
  return groups.flatMap(({ rules }) => rules);
}

interface DashboardPanel {
  readonly title: string;
  readonly targets?: readonly { readonly expr: string; readonly legendFormat: string }[] | undefined;
}

function readDashboard(): { readonly panels: readonly DashboardPanel[] } {
  return JSON.parse(readFileSync("deploy/monitoring/dashboard.json", "utf8"));
}

export function queriesOfRules(): readonly PlacedQuery[] {
  return readRules().map(({ alert, expr, annotations }) => ({
    place: alert,
    expr,
    namedLabels: [
      ...Object.values(annotations)
        .join(" ")
        .matchAll(/\$labels\.(\w+)/g),
    ].map(([, name = ""]) => name),
  }));
}

/** Returns the queries of the dashboard. Grafana's variables are replaced by values that match everything. */
export function queriesOfDashboard(): readonly PlacedQuery[] {
  return readDashboard().panels.flatMap(({ title, targets = [] }) =>
    targets.map(({ expr, legendFormat }) => ({
      place: title,
      expr: expr.replaceAll("$__rate_interval", "5m").replaceAll(/\$(watcher|node)\b/g, ".*"),
      namedLabels: [...legendFormat.matchAll(/\{\{(\w+)\}\}/g)].map(([, name = ""]) => name),
    })),
  );
}

/** Metric in an expression, with the labels that select its series. */
interface Selector {
  readonly metric: string;
  readonly matchers: readonly { readonly label: string; readonly operator: string; readonly value: string }[];
}

/** Metrics and labels that an expression uses. */
interface Asked {
  readonly selectors: readonly Selector[];
  /** Labels that group or join results. */
  readonly groupings: readonly string[];
}

const words = new Set("and or unless by on without ignoring group_left group_right offset bool".split(" "));

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
