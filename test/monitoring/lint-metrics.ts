import { labelNames, type Metric } from "./exposition.ts";

/** Suffixes of a histogram's or summary's series, which a metric's own name must not have. */
const reserved = /_(bucket|count|sum)$/;
/** Units that are not base units, which metrics must use. */
const scaled =
  /_(milliseconds|ms|microseconds|us|nanoseconds|ns|minutes|hours|days|kilobytes|kb|megabytes|mb|percent)(_|$)/;
const kindInName = /_(gauge|counter|histogram|summary)(_|$)/;
const labelName = /^[a-z][a-z0-9_]*$/;

/**
 * Returns problems of metrics, by the rules of Prometheus that promtool checks, and some more.
 *
 * *Source:* Prometheus, "Metric and label naming".
 */
export function lintMetrics(metrics: Iterable<Metric>): readonly string[] {
  return [...metrics].flatMap((metric) => lint(metric).map((problem) => `${metric.name}: ${problem}`));
}

function lint(metric: Metric): readonly string[] {
  const { name, type, help, samples } = metric;
  const problems: string[] = [];
  if (help === "") problems.push("no help");
  if (type === "untyped") problems.push("no type");
  if (!/^[a-z][a-z0-9_]*$/.test(name)) problems.push("a name is of lower case letters, digits and underscores");
  if ((type === "counter") !== name.endsWith("_total")) problems.push("a counter, and nothing else, ends in _total");
  if (reserved.test(name)) problems.push("has the suffix of a histogram's series");
  if (scaled.test(name)) problems.push("not in a base unit: seconds, bytes, ratio");
  if (kindInName.test(name)) problems.push("its type is in its name");
  if (type === "histogram" && !/_(seconds|bytes|ratio)$/.test(name)) problems.push("a histogram ends in its unit");
  if (name.includes("timestamp") && !name.endsWith("_timestamp_seconds"))
    problems.push("a time ends in _timestamp_seconds");
  for (const label of labelNames(metric)) {
    if (!labelName.test(label) || label.startsWith("__")) problems.push(`label ${label}`);
  }
  return [...problems, ...lintSamples(samples), ...(type === "histogram" ? lintBuckets(metric) : [])];
}

function lintSamples(samples: Metric["samples"]): readonly string[] {
  const seen = new Set<string>();
  const problems: string[] = [];
  for (const { name, labels, value } of samples) {
    const series = `${name}{${Object.entries(labels).sort().join(" ")}}`;
    if (seen.has(series)) problems.push(`${series} comes twice`);
    seen.add(series);
    if (Number.isNaN(value)) problems.push(`${series} is no number`);
    if (Object.values(labels).some((text) => text === "")) problems.push(`${series} has an empty label`);
  }
  return problems;
}

function lintBuckets({ name, samples }: Metric): readonly string[] {
  const problems: string[] = [];
  for (const [series, buckets] of Map.groupBy(
    samples.filter((sample) => sample.name === `${name}_bucket`),
    ({ labels: { le: _, ...rest } }) => JSON.stringify(rest),
  )) {
    const counts = buckets.map(({ value }) => value);
    if (counts.some((count, index) => count < (counts[index - 1] ?? 0))) problems.push(`${series}: buckets fall`);
    if (buckets.at(-1)?.labels.le !== "+Inf") problems.push(`${series}: no bucket +Inf at the end`);
  }
  return problems;
}
