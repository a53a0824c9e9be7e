export type MetricType = "counter" | "gauge" | "histogram" | "summary" | "untyped";

/** One line of values. */
export interface Sample {
  /** With `_bucket`, `_sum` or `_count`, if it is of a histogram. */
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** A metric with all its series. */
export interface Metric {
  readonly name: string;
  readonly type: MetricType;
  readonly help: string;
  readonly samples: readonly Sample[];
}

/**
 * Reads the text of a /metrics.
 *
 * *Source:* Prometheus, "Text-based format", version 0.0.4.
 *
 * Errors: a line that is none of it, a metric without TYPE, or one that comes twice.
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
      if (isSecond || metric.samples.length > 0) throw new Error(`${what} of ${name} comes twice, or too late`);
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
  if (name === undefined || value === undefined) throw new Error(`no sample: "${line}"`);
  return { name, labels: parseLabels(labels), value: value === "+Inf" ? Number.POSITIVE_INFINITY : Number(value) };
}

function parseLabels(text: string): Readonly<Record<string, string>> {
  const labels: Record<string, string> = {};
  let rest = text;
  while (rest !== "") {
    const match = /^([a-zA-Z_]\w*)="((?:[^"\\]|\\[\\"n])*)"(?:,|$)/.exec(rest);
    const [whole, name, value] = match ?? [];
    if (whole === undefined || name === undefined || value === undefined) throw new Error(`no labels: {${text}}`);
    if (name in labels) throw new Error(`label ${name} comes twice: {${text}}`);
    labels[name] = value;
    rest = rest.slice(whole.length);
  }
  return labels;
}

/** Names of the labels that any of the samples has, sorted; `le` and `quantile`, which its type gives it, not among them. */
export function labelNames({ samples }: Metric): readonly string[] {
  const names = new Set(samples.flatMap(({ labels }) => Object.keys(labels)));
  return [...names].filter((name) => name !== "le" && name !== "quantile").sort();
}

/** Upper bounds of a histogram's buckets, ascending, without +Inf. */
export function bucketsOf({ samples }: Metric): readonly number[] {
  const bounds = samples.filter(({ name }) => name.endsWith("_bucket")).map(({ labels }) => Number(labels.le));
  return [...new Set(bounds)].filter(Number.isFinite).sort((a, b) => a - b);
}
