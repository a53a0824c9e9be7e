import type { Row } from "./panel.ts";
import { node, watcher } from "./queries.ts";

export const overview: Row = {
  title: "Overview",
  panels: [
    {
      title: "Watchers synced",
      description: "Watchers that have the state of the cluster.",
      unit: "short",
      isStat: true,
      queries: [{ expr: `sum(kpng_store_synced{${watcher}})`, legend: "synced" }],
    },
    {
      title: "Subscribers",
      description: "Nodes and relays with an open stream.",
      unit: "short",
      isStat: true,
      queries: [{ expr: `sum(kpng_subscribers{${watcher}})`, legend: "subscribers" }],
    },
    {
      title: "Failing nodes",
      description: "Their last attempt to apply what they received failed.",
      unit: "short",
      isStat: true,
      redFrom: 1,
      queries: [{ expr: `sum(kpng_subscribers_failing{${watcher}})`, legend: "failing" }],
    },
    {
      title: "Furthest behind",
      description: "How long the slowest node has not applied what it was sent.",
      unit: "s",
      isStat: true,
      redFrom: 60,
      queries: [{ expr: `max(kpng_oldest_unapplied_seconds{${watcher}})`, legend: "behind" }],
    },
    {
      title: "Backends without watcher",
      description: "They keep their rules.",
      unit: "short",
      isStat: true,
      redFrom: 1,
      queries: [{ expr: `count(kpng_backend_stream_connected{${node}} == 0) or vector(0)`, legend: "without" }],
    },
    {
      title: "Versions",
      description: "Processes by version.",
      unit: "short",
      isStat: true,
      queries: [{ expr: "count by (version) (kpng_build_info)", legend: "{{version}}" }],
    },
  ],
};
