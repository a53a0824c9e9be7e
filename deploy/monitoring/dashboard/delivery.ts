import type { Row } from "./panel.ts";
import { each, rate, spread, watcher } from "./queries.ts";

export const delivery: Row = {
  title: "Watcher: from change to rule",
  panels: [
    {
      title: "Convergence",
      description: "From when a change is stored until the last node that it concerns has applied it.",
      unit: "s",
      queries: spread("kpng_convergence_seconds", watcher),
    },
    {
      title: "Apply",
      description: "From when a node is sent a batch until it says that it has applied it.",
      unit: "s",
      queries: spread("kpng_apply_seconds", watcher),
    },
    {
      title: "Oldest unapplied",
      description: "Grows while one node hangs; falls to 0 between changes.",
      unit: "s",
      redFrom: 60,
      queries: [each("kpng_oldest_unapplied_seconds", watcher)],
    },
    {
      title: "Nodes behind and failing",
      description: "Behind: was sent something that it has not applied yet. Failing: has said that it cannot.",
      unit: "short",
      queries: [
        { ...each("kpng_subscribers_behind", watcher), legend: "{{instance}} behind" },
        { ...each("kpng_subscribers_failing", watcher), legend: "{{instance}} failing" },
        { ...each("kpng_revisions_unapplied", watcher), legend: "{{instance}} revisions not everywhere" },
      ],
    },
    {
      title: "Attempts that failed",
      description: "Revisions that nodes said they could not apply.",
      unit: "ops",
      queries: [{ expr: rate("kpng_apply_failures_total", watcher), legend: "{{instance}}" }],
    },
    {
      title: "Subscribers",
      description: "Open streams; local ones are nodes, global ones relays.",
      unit: "short",
      queries: [each("kpng_subscribers", watcher, "kind")],
    },
    {
      title: "Batches sent",
      description: "One for each subscriber that a change concerns.",
      unit: "ops",
      queries: [{ expr: rate("kpng_batches_total", watcher), legend: "{{instance}} {{kind}}" }],
    },
    {
      title: "Bytes sent",
      description: "Of messages, without what HTTP/2 and TLS add.",
      unit: "Bps",
      queries: [{ expr: rate("kpng_sent_bytes_total", watcher), legend: "{{instance}} {{kind}}" }],
    },
  ],
};
