import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { carriedTraffic } from "./carried-traffic.ts";
import { connections } from "./connections.ts";
import { delivery } from "./delivery.ts";
import { nodesRow } from "./nodes.ts";
import { overview } from "./overview.ts";
import type { Panel, Row } from "./panel.ts";
import { backends } from "./service-proxies.ts";
import { state } from "./state.ts";

/**
 * Writes `../dashboard.json` from the panels of this folder. With `--check`, fails if the file is not up to date.
 *
 * Usage: `node deploy/monitoring/dashboard/make.ts [--check]`.
 */

/** The rows from top to bottom: overview, path of a change, watcher, nodes. */
const rows: readonly Row[] = [overview, delivery, state, connections, backends, carriedTraffic, nodesRow];

/** Width of Grafana's grid, in columns. A graph takes a third of it, a number a sixth. */
const gridWidth = 24;
const [graphWidth, graphHeight] = [8, 8];
const [statWidth, statHeight] = [4, 4];

// biome-ignore lint/suspicious/noTemplateCurlyInString: the placeholder is Grafana's.
const datasource = { type: "prometheus", uid: "${datasource}" };

function showDashboard(): string {
  const dashboard = {
    uid: "kpng",
    title: "kpng",
    tags: ["kpng", "kubernetes", "network"],
    description:
      "Watchers and backends of kpng. Made by deploy/monitoring/dashboard/make.ts; metrics: docs/reference/metrics.md.",
    schemaVersion: 41,
    version: 1,
    editable: true,
    graphTooltip: 1,
    refresh: "30s",
    time: { from: "now-1h", to: "now" },
    timezone: "browser",
    templating: { list: variables() },
    annotations: { list: [] },
    links: [],
    panels: layOut(rows),
  };
  return `${JSON.stringify(dashboard, undefined, 2)}\n`;
}

function variables(): readonly object[] {
  const instances = (name: string, label: string, metric: string): object => ({
    name,
    label,
    type: "query",
    datasource,
    query: { query: `label_values(${metric}, instance)`, refId: name },
    refresh: 2,
    sort: 1,
    multi: true,
    includeAll: true,
    allValue: ".*",
    current: { text: ["All"], value: ["$__all"] },
  });
  return [
    { name: "datasource", label: "Data source", type: "datasource", query: "prometheus" },
    instances("watcher", "Watchers", "kpng_store_synced"),
    instances("node", "Nodes", "kpng_backend_stream_connected"),
  ];
}

function layOut(all: readonly Row[]): readonly object[] {
  const shown: object[] = [];
  let y = 0;
  for (const { title, panels } of all) {
    shown.push({
      id: shown.length + 1,
      type: "row",
      title,
      collapsed: false,
      panels: [],
      gridPos: { x: 0, y, w: 24, h: 1 },
    });
    y += 1;
    let x = 0;
    let height = 0;
    for (const panel of panels) {
      const [w, h] = panel.isStat === true ? [statWidth, statHeight] : [graphWidth, graphHeight];
      if (x + w > gridWidth) {
        x = 0;
        y += height;
      }
      shown.push({ id: shown.length + 1, ...showPanel(panel), gridPos: { x, y, w, h } });
      x += w;
      height = h;
    }
    y += height;
  }
  return shown;
}

function showPanel({ title, description, unit, queries, isStat = false, redFrom }: Panel): object {
  const steps = [{ color: "green", value: null }, ...(redFrom === undefined ? [] : [{ color: "red", value: redFrom }])];
  const thresholds = { mode: "absolute", steps };
  const custom = {
    lineWidth: 1,
    fillOpacity: 10,
    showPoints: "never",
    thresholdsStyle: { mode: redFrom === undefined ? "off" : "line" },
  };
  const targets = queries.map(({ expr, legend }, index) => ({
    refId: String.fromCharCode("A".charCodeAt(0) + index),
    datasource,
    expr,
    legendFormat: legend,
    ...(isStat ? { instant: true } : { range: true }),
  }));
  const common = { title, description, datasource, targets };
  if (isStat) {
    const options = { colorMode: "background", graphMode: "none", reduceOptions: { calcs: ["lastNotNull"] } };
    return { type: "stat", ...common, fieldConfig: { defaults: { unit, thresholds }, overrides: [] }, options };
  }
  return {
    type: "timeseries",
    ...common,
    fieldConfig: { defaults: { unit, min: 0, thresholds, custom }, overrides: [] },
    options: { legend: { displayMode: "list", placement: "bottom" }, tooltip: { mode: "multi", sort: "desc" } },
  };
}

const path = join(import.meta.dirname, "../dashboard.json");
if (process.argv.includes("--check")) {
  if (readFileSync(path, "utf8") !== showDashboard()) {
    process.stderr.write("dashboard.json is not what its panels say: node deploy/monitoring/dashboard/make.ts\n");
    process.exitCode = 1;
  }
} else writeFileSync(path, showDashboard());
