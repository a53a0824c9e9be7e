import type { Row } from "./panel.ts";
import { each, rate, watcher } from "./queries.ts";

export const connections: Row = {
  title: "Watcher: connections and process",
  panels: [
    {
      title: "Connections",
      description: "Open connections.",
      unit: "short",
      queries: [each("kpng_connections", watcher)],
    },
    {
      title: "Connections ended by the watcher",
      description: "age and drain are normal; idle and silent clients were gone.",
      unit: "ops",
      queries: [{ expr: rate("kpng_connections_ended_total", watcher), legend: "{{instance}} {{reason}}" }],
    },
    {
      title: "Streams begun",
      description: "whole: a node without a view; resumed: a node that kept its view; global: a relay.",
      unit: "ops",
      queries: [{ expr: rate("kpng_streams_begun_total", watcher), legend: "{{instance}} {{view}}" }],
    },
    {
      title: "Admission",
      description: "Streams that wait for the end of their first batch, and streams that were refused.",
      unit: "short",
      queries: [
        { ...each("kpng_admission_beginning", watcher), legend: "{{instance}} {{view}} waiting" },
        { expr: rate("kpng_admission_refused_total", watcher), legend: "{{instance}} {{view}} refused/s" },
        { expr: rate("kpng_refused_total", watcher), legend: "{{instance}} {{reason}} refused/s" },
        {
          expr: rate("kpng_status_connections_closed_total", watcher),
          legend: "{{instance}} probe connections closed/s",
        },
      ],
    },
    {
      title: "Tokens",
      description: "Reviews of tokens by the API server.",
      unit: "ops",
      queries: [{ expr: rate("kpng_token_reviews_total", watcher), legend: "{{instance}} review {{result}}" }],
    },
    {
      title: "Certificate",
      description: "Time until the certificate of the listeners expires.",
      unit: "s",
      queries: [
        {
          expr: `kpng_certificate_expiry_timestamp_seconds{${watcher}} - time()`,
          legend: "{{instance}} {{use}}",
        },
      ],
    },
    {
      title: "Event loop",
      description: "How long it is blocked.",
      unit: "s",
      redFrom: 0.5,
      queries: [
        { expr: `nodejs_eventloop_lag_p99_seconds{${watcher}}`, legend: "{{instance}} p99" },
        { expr: `nodejs_eventloop_lag_max_seconds{${watcher}}`, legend: "{{instance}} max" },
      ],
    },
    {
      title: "CPU",
      description: "1 is one core.",
      unit: "short",
      queries: [{ expr: rate("process_cpu_seconds_total", watcher), legend: "{{instance}}" }],
    },
    {
      title: "Memory",
      description: "Resident.",
      unit: "bytes",
      queries: [{ expr: `process_resident_memory_bytes{${watcher}}`, legend: "{{instance}}" }],
    },
    {
      title: "Garbage collection",
      description: "Share of the time.",
      unit: "percentunit",
      queries: [
        { expr: `sum by (instance) (${rate("nodejs_gc_duration_seconds_sum", watcher)})`, legend: "{{instance}}" },
      ],
    },
  ],
};
