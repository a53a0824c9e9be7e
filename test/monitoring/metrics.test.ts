import { spawnSync } from "node:child_process";
import { mkdtempDisposableSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import { findBinaries } from "../cluster/binaries.ts";
import { describePackets } from "../kernel/describe-packets.ts";
import { alertCases } from "./alert-cases.ts";
import { labelNames, parseExposition, type Sample } from "./exposition.ts";
import { queriesOfDashboard, queriesOfRules, readPromql, readRules } from "./queries.ts";
import { type Scrapes, scrapePrograms } from "./scrape-programs.ts";

const queries = [...queriesOfRules(), ...queriesOfDashboard()];

/** Labels that Prometheus adds to each series, and the label of a histogram's buckets. */
const always = ["job", "instance", "le"];

/** Metrics of backends that are not scraped: many kernels of test machines have no IPVS, or no right to use BPF. */
const notScraped = ["kpng_ipvs_refused_objects"];

/** Names of kube-proxy, which existing dashboards query. */
const asInKubeProxy = [
  "kubeproxy_sync_proxy_rules_iptables_total",
  "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
];

const promtool = await findBinaries(["promtool"]);
const whyNoPromtool = promtool.kind === "missing" ? promtool.reason : undefined;
const note = whyNoPromtool === undefined ? "" : ` (skipped: ${whyNoPromtool})`;

/** Runs promtool, and returns its exit status and what it prints. */
function runPromtool(args: readonly string[], input = "") {
  const program = promtool.kind === "missing" ? "" : promtool.paths.promtool;
  const { status, stdout, stderr } = spawnSync(program, args, { input, encoding: "utf8" });
  return { status, output: `${stdout}${stderr}`.trim() };
}

describePackets("the metrics of all programs", () => {
  let scrapes: Scrapes = new Map();
  /** Samples by the name in a query. */
  const samples = new Map<string, Sample[]>();
  /** Metrics without series at the start. */
  const empty = new Set<string>();
  beforeAll(async () => {
    scrapes = await scrapePrograms();
    for (const text of scrapes.values()) {
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
  }, 180_000);

  test.each(queries)("are what is queried at $place: $expr", ({ expr, namedLabels }) => {
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

  test("of the dashboard and the rules exist from the start, except those that need kube-proxy, TLS, an overload or a carried connection", () => {
    const asked = new Set(queries.flatMap(({ expr }) => readPromql(expr).selectors.map(({ metric }) => metric)));
    expect([...asked].filter((metric) => empty.has(metric)).toSorted()).toEqual([
      "kpng_certificate_expiry_timestamp_seconds",
      "kpng_userspace_bytes_total",
      "kpng_userspace_connect_retries_total",
      "kpng_userspace_connections_ended_total",
      "kpng_userspace_connections_total",
      "kpng_userspace_service_connections",
    ]);
  });

  test.skipIf(whyNoPromtool !== undefined)(`pass promtool${note}`, () => {
    const problems = [...scrapes].flatMap(([program, text]) => {
      const { output } = runPromtool(["check", "metrics"], text);
      return output.split("\n").map((line) => `${program}: ${line}`);
    });
    const others = problems.filter((problem) => !asInKubeProxy.some((name) => problem.includes(`: ${name} `)));
    expect(others.filter((problem) => !problem.endsWith(": "))).toEqual([]);
  });

  test("start each series that counts failures with 0", () => {
    const failures = [...scrapes.values()].flatMap((text) =>
      [...parseExposition(text).values()].filter(({ name }) => /(failures|errors|refused|repairs)_total$/.test(name)),
    );
    expect(failures.length).toBeGreaterThan(8);
    expect(failures.filter(({ samples }) => samples.length === 0).map(({ name }) => name)).toEqual([]);
  });

  test("with the same name have the same type and help in each program", () => {
    const meanings = new Map<string, Set<string>>();
    for (const text of scrapes.values()) {
      for (const { name, type, help } of parseExposition(text).values()) {
        const known = meanings.get(name) ?? new Set();
        meanings.set(name, known.add(`${type}: ${help}`));
      }
    }
    expect([...meanings].filter(([, known]) => known.size > 1)).toEqual([]);
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

describe.skipIf(whyNoPromtool !== undefined)(`promtool accepts${note}`, () => {
  test("the scrape configuration and the rules", () => {
    const { status, output } = runPromtool(["check", "config", "deploy/monitoring/prometheus.yaml"]);
    expect(status, output).toBe(0);
    expect(output).toMatch(/SUCCESS: [1-9]\d* rules found/);
  });

  test("each query of the dashboard", () => {
    const rules = queriesOfDashboard().map(({ expr }, index) => ({ record: `query_${index}`, expr }));
    expect(rules.length).toBeGreaterThan(60);
    // JSON is YAML.
    const { status, output } = runPromtool(["check", "rules"], JSON.stringify({ groups: [{ name: "a", rules }] }));
    expect(status, output).toBe(0);
  });
});

describe.skipIf(whyNoPromtool !== undefined)(`an alert${note}`, () => {
  test("has a case", () => {
    expect(alertCases.map(({ alert }) => alert)).toEqual(readRules().map(({ alert }) => alert));
  });

  test.each(alertCases)("$alert fires for its case, and not for similar series", ({ alert, fires, silent }) => {
    using folder = mkdtempDisposableSync(join(tmpdir(), "kpng-alerts-"));
    const expr = `count(ALERTS{alertname="${alert}",alertstate="firing"}) > bool 0`;
    const tests = [fires, silent].map((series) => ({
      interval: "1m",
      input_series: Object.entries(series).map(([name, values]) => ({ series: name, values })),
      promql_expr_test: [{ expr, eval_time: "30m", exp_samples: series === fires ? [{ labels: "{}", value: 1 }] : [] }],
    }));
    const file = join(folder.path, "alert.json");
    writeFileSync(file, JSON.stringify({ rule_files: [resolve("deploy/monitoring/rules.yaml")], tests }));
    const { status, output } = runPromtool(["test", "rules", file]);
    expect(status, output).toBe(0);
  });
});

describe("the dashboard", () => {
  test("queries each of our metrics", () => {
    const metrics = queriesOfDashboard().flatMap(({ expr }) => readPromql(expr).selectors.map(({ metric }) => metric));
    const asked = new Set(metrics.flatMap((name) => [name, name.replace(/_(bucket|sum|count)$/, "")]));
    const reference = readFileSync("docs/reference/metrics.md", "utf8");
    const documented = [...reference.matchAll(/^\| `((?:kpng|kubeproxy)_[a-z_]+)` \|/gm)].map(([, name = ""]) => name);
    expect(documented.length).toBeGreaterThan(50);
    expect(documented.filter((name) => !asked.has(name))).toEqual([]);
  });
});
