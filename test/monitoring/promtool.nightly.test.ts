import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { alertCases } from "./alert-cases.ts";
import { findPromtool } from "./promtool.ts";
import { queriesOfDashboard, readRules } from "./queries.ts";

const promtool = await findPromtool();

test("every alert has a case", () => {
  expect(alertCases.map(({ alert }) => alert)).toEqual(readRules().map(({ alert }) => alert));
});

describe("promtool", () => {
  if ("whyNot" in promtool) {
    test.skip(`is available (skipped: ${promtool.whyNot})`, () => undefined);
    return;
  }
  let folder: string;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), "kpng-promtool-"));
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  /** Writes a file for promtool in JSON, which is valid YAML. */
  function write(name: string, content: unknown): string {
    const path = join(folder, name);
    writeFileSync(path, JSON.stringify(content));
    return path;
  }

  test("accepts the scrape configuration and the rules", () => {
    const { isContent, output } = promtool.run(["check", "config", "deploy/monitoring/prometheus.yaml"]);
    expect(isContent, output).toBe(true);
    expect(output).toMatch(/SUCCESS: [1-9]\d* rules found/);
  });

  test("accepts each query of the dashboard", () => {
    const rules = queriesOfDashboard().map(({ expr }, index) => ({ record: `query_${index}`, expr }));
    expect(rules.length).toBeGreaterThan(60);
    const { isContent, output } = promtool.run([
      "check",
      "rules",
      write("queries.json", { groups: [{ name: "a", rules }] }),
    ]);
    expect(isContent, output).toBe(true);
  });

  test.each(alertCases)("$alert fires for its case, and not for similar series", ({ alert, fires, silent }) => {
    const firing = `count(ALERTS{alertname="${alert}",alertstate="firing"})`;
    const tests = [fires, silent].map((series, index) => ({
      interval: "1m",
      input_series: Object.entries(series).map(([name, values]) => ({ series: name, values })),
      promql_expr_test: [
        { expr: `${firing} > bool 0`, eval_time: "30m", exp_samples: index === 0 ? [{ labels: "{}", value: 1 }] : [] },
      ],
    }));
    const file = write(`${alert}.json`, { rule_files: [resolve("deploy/monitoring/rules.yaml")], tests });
    const { isContent, output } = promtool.run(["test", "rules", file]);
    expect(isContent, output).toBe(true);
  });
});
