type MetricType = "counter" | "gauge" | "histogram" | "summary" | "untyped";

/** One line of an exposition. */
export interface Sample {
  /** Name, with `_bucket`, `_sum` or `_count` for a histogram. */
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** Metric with all its series. */
export interface Metric {
  readonly name: string;
  readonly type: MetricType;
  readonly help: string;
  readonly samples: readonly Sample[];
}

/** Parses the text of a /metrics endpoint, which promtool checks. Fails on a line that it does not understand. */
export function parseExposition(text: string): ReadonlyMap<string, Metric> {
  const metrics = new Map<string, { name: string; type: MetricType; help: string; samples: Sample[] }>();
  for (const line of text.split("\n").filter(Boolean)) {
    const [, what, name = "", labels = "", rest = ""] =
      /^(?:# (HELP|TYPE) )?([a-zA-Z_:][\w:]*)(?:\{(.*)\})? ?(.*)$/.exec(line) ?? [];
    const metric = metrics.get(name) ?? metrics.get(name.replace(/_(bucket|sum|count)$/, ""));
    if (what === "HELP") metrics.set(name, { name, type: "untyped", help: rest, samples: [] });
    else if (metric === undefined) throw new Error(`no HELP for "${line}"`);
    else if (what === "TYPE") metric.type = rest as MetricType;
    else metric.samples.push({ name, labels: parseLabels(labels), value: Number(rest.replace("+Inf", "Infinity")) });
  }
  return metrics;
}

function parseLabels(text: string): Readonly<Record<string, string>> {
  const pairs = [...text.matchAll(/([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g)];
  return Object.fromEntries(pairs.map(([, name, value]) => [name, value]));
}

/** Returns the names of all labels of the samples, sorted, except `le` and `quantile`, which belong to the type. */
export function labelNames({ samples }: Metric): readonly string[] {
  const names = new Set(samples.flatMap(({ labels }) => Object.keys(labels)));
  return [...names].filter((name) => name !== "le" && name !== "quantile").sort();
}

/** Returns the upper bounds of a histogram's buckets, ascending, without +Inf. */
export function bucketsOf({ samples }: Metric): readonly number[] {
  const bounds = samples.filter(({ name }) => name.endsWith("_bucket")).map(({ labels }) => Number(labels.le));
  return [...new Set(bounds)].filter(Number.isFinite).sort((a, b) => a - b);
}
