import type { Row } from "./panel.ts";
import { each, rate, spread, watcher } from "./queries.ts";

export const delivery: Row = {
  title: "Watcher: from change to rule",
  panels: [
    {
      title: "Convergence",
      description: "Time from when a change is stored until the last node that it concerns has applied it.",
      unit: "s",
      queries: spread("kpng_convergence_seconds", watcher),
    },
    {
      title: "Apply",
      description: "Time from when a batch is sent to a node until the node reports that it has applied it.",
      unit: "s",
      queries: spread("kpng_apply_seconds", watcher),
    },
    {
      title: "Oldest unapplied",
      description: "Grows while a node hangs; 0 between changes.",
      unit: "s",
      redFrom: 60,
      queries: [each("kpng_oldest_unapplied_seconds", watcher)],
    },
    {
      title: "Nodes behind and failing",
      description: "Behind: has not applied yet what it was sent. Failing: has reported a failure.",
      unit: "short",
      queries: [
        { ...each("kpng_subscribers_behind", watcher), legend: "{{instance}} behind" },
        { ...each("kpng_subscribers_failing", watcher), legend: "{{instance}} failing" },
        { ...each("kpng_revisions_unapplied", watcher), legend: "{{instance}} revisions not everywhere" },
      ],
    },
    {
      title: "Failed attempts",
      description: "Revisions that nodes reported as failed.",
      unit: "ops",
      queries: [{ expr: rate("kpng_apply_failures_total", watcher), legend: "{{instance}}" }],
    },
    {
      title: "Subscribers",
      description: "Open streams. local: nodes; global: relays.",
      unit: "short",
      queries: [each("kpng_subscribers", watcher, "kind")],
    },
    {
      title: "Batches sent",
      description: "One batch for each subscriber that a change concerns.",
      unit: "ops",
      queries: [{ expr: rate("kpng_batches_total", watcher), legend: "{{instance}} {{kind}}" }],
    },
    {
      title: "Bytes sent",
      description: "Bytes of messages, without HTTP/2 and TLS overhead.",
      unit: "Bps",
      queries: [{ expr: rate("kpng_sent_bytes_total", watcher), legend: "{{instance}} {{kind}}" }],
    },
  ],
};
