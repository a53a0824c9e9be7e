import { readFileSync } from "node:fs";
import { parse } from "yaml";

/** Rule of deploy/monitoring/rules.yaml. */
export interface AlertRule {
  readonly alert: string;
  readonly expr: string;
  readonly for?: string | undefined;
  readonly labels: { readonly severity: string };
  readonly annotations: { readonly summary: string; readonly description: string; readonly runbook: string };
}

/** Expression with its location, and the labels that its texts refer to. */
export interface PlacedQuery {
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
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  readonly targets?: readonly { readonly expr: string; readonly legendFormat: string }[] | undefined;
}

export function readDashboard(): { readonly panels: readonly DashboardPanel[] } {
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
