export type MetricType = "counter" | "gauge" | "histogram" | "summary" | "untyped";

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

/**
 * Parses the text of a /metrics endpoint.
 *
 * *Source:* Prometheus, "Text-based format", version 0.0.4.
 *
 * Errors: an invalid line, a metric without TYPE, or a duplicate metric.
 */
export function parseExposition(text: string): ReadonlyMap<string, Metric> {
  const metrics = new Map<string, { name: string; type: MetricType; help: string; samples: Sample[] }>();
  const of = (name: string) => {
    const metric = metrics.get(name) ?? { name, type: "untyped", help: "", samples: [] };
    metrics.set(name, metric);
    return metric;
  };
  for (const line of text.split("\n")) {
    if (line === "") continue;
    const comment = /^# (HELP|TYPE) ([a-zA-Z_:][\w:]*) ?(.*)$/.exec(line);
    if (comment !== null) {
      const [, what, name = "", rest = ""] = comment;
      const metric = of(name);
      const isSecond = what === "HELP" ? metric.help !== "" : metric.type !== "untyped";
      if (isSecond || metric.samples.length > 0)
        throw new Error(`${what} of ${name} is a duplicate or follows its samples`);
      if (what === "HELP") metric.help = rest;
      else metric.type = rest as MetricType;
      continue;
    }
    if (line.startsWith("#")) continue;
    const sample = parseSample(line);
    const metric = metrics.get(sample.name) ?? metrics.get(sample.name.replace(/_(bucket|sum|count)$/, ""));
    if (metric === undefined) throw new Error(`no TYPE for "${line}"`);
    metric.samples.push(sample);
  }
  return metrics;
}

function parseSample(line: string): Sample {
  const match = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line);
  const [, name, labels = "", value] = match ?? [];
  if (name === undefined || value === undefined) throw new Error(`invalid sample: "${line}"`);
  return { name, labels: parseLabels(labels), value: value === "+Inf" ? Number.POSITIVE_INFINITY : Number(value) };
}

function parseLabels(text: string): Readonly<Record<string, string>> {
  const labels: Record<string, string> = {};
  let rest = text;
  while (rest !== "") {
    const match = /^([a-zA-Z_]\w*)="((?:[^"\\]|\\[\\"n])*)"(?:,|$)/.exec(rest);
    const [whole, name, value] = match ?? [];
    if (whole === undefined || name === undefined || value === undefined) throw new Error(`invalid labels: {${text}}`);
    if (name in labels) throw new Error(`duplicate label ${name}: {${text}}`);
    labels[name] = value;
    rest = rest.slice(whole.length);
  }
  return labels;
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
