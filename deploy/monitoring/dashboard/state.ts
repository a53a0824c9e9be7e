import type { Row } from "./panel.ts";
import { each, rate, watcher } from "./queries.ts";

export const state: Row = {
  title: "Watcher: state and source",
  panels: [
    {
      title: "Revisions",
      description: "States of the cluster that were made.",
      unit: "ops",
      queries: [{ expr: rate("kpng_store_revision", watcher), legend: "{{instance}}" }],
    },
    {
      title: "Last change",
      description: "Time since the state changed; a small cluster may be quiet for hours.",
      unit: "s",
      queries: [{ expr: `time() - kpng_store_last_change_timestamp_seconds{${watcher}}`, legend: "{{instance}}" }],
    },
    {
      title: "Objects",
      description: "What the state consists of.",
      unit: "short",
      queries: [each("kpng_store_objects", watcher, "kind")],
    },
    {
      title: "Changes",
      description: "Objects that changed by value.",
      unit: "ops",
      queries: [{ expr: rate("kpng_store_changes_total", watcher), legend: "{{instance}} {{verb}} {{kind}}" }],
    },
    {
      title: "Events of the API server",
      description: "What its watches told, whether it made a difference or not.",
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
      description: "Time since it said anything of a kind; below two minutes in order.",
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
      title: "Lists and watches that failed",
      description: "Lists and watches by what came of them; those that ended in order are left out.",
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
      description: "Objects and files that could not be understood.",
      unit: "ops",
      queries: [
        { expr: rate("kpng_source_bad_objects_total", watcher), legend: "{{instance}} {{kind}}" },
        { expr: rate("kpng_source_errors_total", watcher), legend: "{{instance}} {{source}}" },
        { expr: rate("kpng_source_loads_total", watcher, ',result="bad"'), legend: "{{instance}} readings of files" },
      ],
    },
  ],
};
