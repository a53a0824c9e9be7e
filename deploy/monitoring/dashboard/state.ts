import type { Row } from "./panel.ts";
import { each, rate, watcher } from "./queries.ts";

export const state: Row = {
  title: "Watcher: state and source",
  panels: [
    {
      title: "Revisions",
      description: "New states of the cluster.",
      unit: "ops",
      queries: [{ expr: rate("kpng_store_revision", watcher), legend: "{{instance}}" }],
    },
    {
      title: "Stale",
      description: "Watchers whose server does not answer, and relays that accepted an older state.",
      unit: "short",
      queries: [
        { expr: `kpng_source_stale{${watcher}}`, legend: "{{instance}} stale" },
        {
          expr: rate("kpng_source_older_states_accepted_total", watcher),
          legend: "{{instance}} older states accepted/s",
        },
      ],
    },
    {
      title: "Last change",
      description: "Time since the state changed; a small cluster may be quiet for hours.",
      unit: "s",
      queries: [{ expr: `time() - kpng_store_last_change_timestamp_seconds{${watcher}}`, legend: "{{instance}}" }],
    },
    {
      title: "Objects",
      description: "Objects in the state, by kind.",
      unit: "short",
      queries: [each("kpng_store_objects", watcher, "kind")],
    },
    {
      title: "Changes",
      description: "Objects whose value changed.",
      unit: "ops",
      queries: [{ expr: rate("kpng_store_changes_total", watcher), legend: "{{instance}} {{verb}} {{kind}}" }],
    },
    {
      title: "Events of the API server",
      description: "Events of its watches, including those that changed nothing.",
      unit: "ops",
      queries: [{ expr: rate("kpng_source_events_total", watcher), legend: "{{instance}} {{verb}} {{kind}}" }],
    },
    {
      title: "Source connected",
      description: "1 while the source follows its server.",
      unit: "bool_on_off",
      queries: [each("kpng_source_connected", watcher, "kind")],
    },
    {
      title: "Silence of the API server",
      description: "Time since it sent anything about a kind; normal below two minutes.",
      unit: "s",
      redFrom: 180,
      queries: [
        {
          expr: `time() - kpng_source_last_progress_timestamp_seconds{${watcher}}`,
          legend: "{{instance}} {{kind}}",
        },
      ],
    },
    {
      title: "Failed lists and watches",
      description: "Lists and watches by result, without the successful ones.",
      unit: "ops",
      queries: [
        {
          expr: rate("kpng_source_lists_total", watcher, ',result!="ok"'),
          legend: "{{instance}} list {{kind}} {{result}}",
        },
        {
          expr: rate("kpng_source_watches_total", watcher, ',result!="closed"'),
          legend: "{{instance}} watch {{kind}} {{result}}",
        },
        { expr: rate("kpng_source_relists_total", watcher), legend: "{{instance}} list again {{kind}} {{reason}}" },
        { expr: rate("kpng_source_disconnects_total", watcher), legend: "{{instance}} upstream lost" },
      ],
    },
    {
      title: "Bad input",
      description: "Objects, parts of objects and files that could not be decoded.",
      unit: "ops",
      queries: [
        { expr: rate("kpng_source_bad_objects_total", watcher), legend: "{{instance}} {{kind}}" },
        { expr: rate("kpng_source_bad_parts_total", watcher), legend: "{{instance}} parts of {{kind}}" },
        { expr: rate("kpng_source_errors_total", watcher), legend: "{{instance}} {{source}}" },
        { expr: rate("kpng_source_loads_total", watcher, ',result="bad"'), legend: "{{instance}} readings of files" },
      ],
    },
  ],
};
