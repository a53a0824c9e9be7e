import { describe, expect, test } from "vitest";
import { describeScrapes } from "./describe-scrapes.ts";
import { type Metric, parseExposition } from "./exposition.ts";
import { lintMetrics } from "./lint-metrics.ts";
import { findPromtool } from "./promtool.ts";

/** Names of kube-proxy, which existing dashboards query. */
const asInKubeProxy = [
  "kubeproxy_sync_proxy_rules_iptables_total",
  "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
];

const promtool = await findPromtool();

await describeScrapes("the metrics of all programs", (scrapes) => {
  test("follow Prometheus's rules for names, types, units, help and series", () => {
    const problems = [...scrapes()].flatMap(([program, text]) =>
      lintMetrics(parseExposition(text).values()).map((problem) => `${program}: ${problem}`),
    );
    expect(problems.filter((problem) => !asInKubeProxy.some((name) => problem.includes(name)))).toEqual([]);
  });

  if ("whyNot" in promtool) test.skip(`satisfies promtool (skipped: ${promtool.whyNot})`, () => undefined);
  else {
    test("pass promtool", () => {
      const problems = [...scrapes()].flatMap(([program, text]) => {
        const { output } = promtool.run(["check", "metrics"], text);
        return output.split("\n").map((line) => `${program}: ${line}`);
      });
      const others = problems.filter((problem) => !asInKubeProxy.some((name) => problem.includes(`: ${name} `)));
      expect(others.filter((problem) => !problem.endsWith(": "))).toEqual([]);
    });
  }

  test("start each series that counts failures with 0", () => {
    const failures = [...scrapes().values()].flatMap((text) =>
      [...parseExposition(text).values()].filter(({ name }) => /(failures|errors|refused|repairs)_total$/.test(name)),
    );
    expect(failures.length).toBeGreaterThan(8);
    expect(failures.filter(({ samples }) => samples.length === 0).map(({ name }) => name)).toEqual([]);
  });

  test("with the same name have the same type and help in each program", () => {
    const meanings = new Map<string, Set<string>>();
    for (const text of scrapes().values()) {
      for (const { name, type, help } of parseExposition(text).values()) {
        const known = meanings.get(name) ?? new Set();
        meanings.set(name, known.add(`${type}: ${help}`));
      }
    }
    expect([...meanings].filter(([, known]) => known.size > 1)).toEqual([]);
  });
});

describe("the lint of metrics", () => {
  const gauge = (parts: Partial<Metric>): Metric => ({
    name: "a_bytes",
    type: "gauge",
    help: "A.",
    samples: [],
    ...parts,
  });

  test.each<[string, Partial<Metric>]>([
    ["no help", { help: "" }],
    ["a counter, and nothing else, ends in _total", { type: "counter" }],
    ["a counter, and nothing else, ends in _total", { name: "a_total" }],
    ["not in a base unit", { name: "wait_ms" }],
    ["lower case", { name: "aBytes" }],
    ["lower case", { name: "a:bytes" }],
    ["a histogram ends in its unit", { name: "waits", type: "histogram" }],
    ["has the suffix of a histogram's series", { name: "objects_count" }],
    ["its type is in its name", { name: "a_gauge_bytes" }],
    ["a time ends in _timestamp_seconds", { name: "last_timestamp" }],
    ["label __x", { samples: [{ name: "a_bytes", labels: { __x: "1" }, value: 1 }] }],
    ["empty label", { samples: [{ name: "a_bytes", labels: { x: "" }, value: 1 }] }],
    ["comes twice", { samples: Array.from({ length: 2 }, () => ({ name: "a_bytes", labels: { x: "1" }, value: 1 })) }],
  ])("says: %s", (wanted, parts) => {
    expect(lintMetrics([gauge({})])).toEqual([]);
    expect(lintMetrics([gauge(parts)]).join("\n")).toContain(wanted);
  });

  test("rejects text that is not an exposition", () => {
    for (const text of ["a 1", "# TYPE a gauge\na{b=c} 1", '# TYPE a gauge\na{b="c",b="d"} 1', "# TYPE a gauge\na"]) {
      expect(() => parseExposition(text), text).toThrow();
    }
  });
});
