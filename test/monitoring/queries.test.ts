import { existsSync, readFileSync } from "node:fs";
import { beforeAll, describe, expect, test } from "vitest";
import { describeScrapes } from "./describe-scrapes.ts";
import { labelNames, parseExposition, type Sample } from "./exposition.ts";
import { readPromql } from "./promql.ts";
import { queriesOfDashboard, queriesOfRules, readDashboard, readRules } from "./queries.ts";

const queries = [...queriesOfRules(), ...queriesOfDashboard()];

/** Labels that Prometheus adds to each series, and the label of a histogram's buckets. */
const always = ["job", "instance", "le"];

/** Metrics of backends that are not scraped: many kernels of test machines have no IPVS, or no right to use BPF. */
const notScraped = [
  ...["ipvs", "ebpf"].flatMap((name) => [`kpng_${name}_repairs_total`, `kpng_${name}_drift_checks_total`]),
  "kpng_ipvs_refused_objects",
];

await describeScrapes("the metrics of the dashboard and the alert rules", (scrapes) => {
  /** Samples by the name in a query. */
  const samples = new Map<string, Sample[]>();
  /** Metrics without series at the start. */
  const empty = new Set<string>();
  beforeAll(() => {
    for (const text of scrapes().values()) {
      for (const metric of parseExposition(text).values()) {
        const suffixes = metric.type === "histogram" ? ["_bucket", "_sum", "_count"] : [""];
        for (const suffix of suffixes) {
          const name = `${metric.name}${suffix}`;
          const found = metric.samples.filter((sample) => sample.name === name);
          samples.set(name, [...(samples.get(name) ?? []), ...found]);
        }
      }
    }
    for (const [name, found] of samples) if (found.length === 0) empty.add(name);
  });

  test.each(queries)("$place: $expr", ({ expr, namedLabels }) => {
    const { selectors, groupings } = readPromql(expr);
    const known = new Set(always);
    if (selectors.some(({ metric }) => notScraped.includes(metric))) return;
    for (const { metric, matchers } of selectors) {
      const found = samples.get(metric);
      expect(found, `${metric} is exposed by no program`).toBeDefined();
      if (found === undefined || empty.has(metric)) continue;
      const labels = labelNames({ name: metric, type: "untyped", help: "", samples: found });
      for (const label of labels) known.add(label);
      for (const { label, operator, value } of matchers) {
        if (always.includes(label)) continue;
        expect(labels, `${metric} has no label ${label}`).toContain(label);
        const values = found.map((sample) => sample.labels[label]);
        if (operator === "=" || operator === "!=") expect(values, `${metric}{${label}}`).toContain(value);
      }
    }
    if (selectors.some(({ metric }) => empty.has(metric))) return;
    expect([...groupings, ...namedLabels].filter((label) => !known.has(label))).toEqual([]);
  });

  test("exist from the start, except those that need kube-proxy, TLS, an overload or a carried connection", () => {
    const asked = new Set(queries.flatMap(({ expr }) => readPromql(expr).selectors.map(({ metric }) => metric)));
    expect([...asked].filter((metric) => empty.has(metric)).toSorted()).toEqual([
      "kpng_certificate_expiry_timestamp_seconds",
      "kpng_userspace_connect_retries_total",
      "kpng_userspace_connections_ended_total",
      "kpng_userspace_connections_total",
      "kpng_userspace_received_bytes_total",
      "kpng_userspace_sent_bytes_total",
      "kpng_userspace_service_connections",
    ]);
  });
});

describe("the alert rules", () => {
  const rules = readRules();

  test("have a name, a severity, and an existing section in docs/alerts.md", () => {
    const headings = [...readFileSync("docs/alerts.md", "utf8").matchAll(/^### (\w+)$/gm)].map(([, name]) => name);
    expect(rules.map(({ alert }) => alert).toSorted()).toEqual(headings.toSorted());
    for (const { alert, labels, annotations } of rules) {
      expect(["critical", "warning", "info"], alert).toContain(labels.severity);
      expect(annotations.runbook).toBe(`docs/alerts.md#${alert.toLowerCase()}`);
    }
  });
});

describe("the dashboard", () => {
  test("has panels that do not overlap and stay within the grid", () => {
    const taken = new Set<string>();
    for (const { title, gridPos } of readDashboard().panels) {
      expect(gridPos.x + gridPos.w, title).toBeLessThanOrEqual(24);
      for (let x = gridPos.x; x < gridPos.x + gridPos.w; x++) {
        for (let y = gridPos.y; y < gridPos.y + gridPos.h; y++) {
          expect(taken.has(`${x},${y}`), `${title} at ${x},${y}`).toBe(false);
          taken.add(`${x},${y}`);
        }
      }
    }
  });

  test("queries each of our metrics", () => {
    const metrics = queriesOfDashboard().flatMap(({ expr }) => readPromql(expr).selectors.map(({ metric }) => metric));
    const asked = new Set(metrics.flatMap((name) => [name, name.replace(/_(bucket|sum|count)$/, "")]));
    const reference = readFileSync("docs/reference/metrics.md", "utf8");
    const documented = [...reference.matchAll(/^\| `((?:kpng|kubeproxy)_[a-z_]+)` \|/gm)].map(([, name = ""]) => name);
    expect(documented.length).toBeGreaterThan(50);
    expect(documented.filter((name) => !asked.has(name))).toEqual([]);
  });
});

describe("readPromql returns", () => {
  test.each([
    ["up", ["up"], []],
    ['sum by (a, b) (rate(x_total{c="d",e=~"f.*"}[5m])) > 3', ["x_total"], ["a", "b"]],
    ["(x > 1) and on (job) y", ["x", "y"], ["job"]],
    ["count(x == 0) or vector(0)", ["x"], []],
    ['time() - x{kind!="a"} > 180', ["x"], []],
  ])("%s", (expr, metrics, groupings) => {
    const asked = readPromql(expr);
    expect(asked.selectors.map(({ metric }) => metric)).toEqual(metrics);
    expect(asked.groupings).toEqual(groupings);
  });

  test("matchers with their labels and values", () => {
    expect(readPromql('x{a="b",c!="d"}').selectors[0]?.matchers).toEqual([
      { label: "a", operator: "=", value: "b" },
      { label: "c", operator: "!=", value: "d" },
    ]);
  });
});

test("every file named in deploy/monitoring/README.md exists", () => {
  for (const name of ["dashboard.json", "rules.yaml", "prometheus.yaml"]) {
    expect(existsSync(`deploy/monitoring/${name}`), name).toBe(true);
  }
});
