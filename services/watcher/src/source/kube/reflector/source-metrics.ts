import { Counter, Gauge, type Registry } from "prom-client";
import { type ConnectedGauge, makeConnectedGauge } from "../../connected-gauge.ts";
import type { KubeKind } from "../request/resource.ts";

/** Metrics of the Kubernetes source, with label `kind`. The observer of each reflector updates them. */
export interface SourceMetrics {
  readonly events: Counter<"source" | "kind" | "verb">;
  readonly lists: Counter<"kind" | "result">;
  readonly watches: Counter<"kind" | "result">;
  readonly relists: Counter<"kind" | "reason">;
  readonly badObjects: Counter<"kind">;
  readonly badParts: Counter<"kind">;
  readonly lastProgress: Gauge<"kind">;
  readonly connected: ConnectedGauge;
}

/** Why a kind is listed again after its first list. */
export type RelistReason = "expired" | "silent" | "refused" | "went-back" | "braked";

/** Registers the metrics. Call it once per registry. */
export function makeSourceMetrics(registry: Registry): SourceMetrics {
  const registers = [registry];
  return {
    events: new Counter({
      name: "kpng_source_events_total",
      help: "Puts and deletes that the source received, excluding first lists",
      labelNames: ["source", "kind", "verb"],
      registers,
    }),
    lists: new Counter({
      name: "kpng_source_lists_total",
      help: "Lists requested from the API server, by result",
      labelNames: ["kind", "result"],
      registers,
    }),
    watches: new Counter({
      name: "kpng_source_watches_total",
      help: "Watches requested from the API server, by how they ended",
      labelNames: ["kind", "result"],
      registers,
    }),
    relists: new Counter({
      name: "kpng_source_relists_total",
      help: "Lists after the first one, by reason",
      labelNames: ["kind", "reason"],
      registers,
    }),
    badObjects: new Counter({
      name: "kpng_source_bad_objects_total",
      help: "Invalid objects received; the source keeps their last valid values",
      labelNames: ["kind"],
      registers,
    }),
    badParts: new Counter({
      name: "kpng_source_bad_parts_total",
      help: "Invalid parts of objects received, such as one port; the source skips them and serves the rest of the object",
      labelNames: ["kind"],
      registers,
    }),
    lastProgress: new Gauge({
      name: "kpng_source_last_progress_timestamp_seconds",
      help: "Time of the last response or event of the API server for this kind; advances about once a minute without changes",
      labelNames: ["kind"],
      registers,
    }),
    connected: makeConnectedGauge(registry),
  };
}

const listResults = ["ok", "refused", "expired", "lost", "silent", "garbled", "braked"] as const;
const watchResults = ["closed", "refused", "expired", "lost", "silent", "garbled", "watch-list-refused"] as const;
const relistReasons = ["expired", "silent", "refused", "went-back", "braked"] as const satisfies RelistReason[];

/** Sets all series of a kind to 0: a rate over a series that starts with its first event would miss that event. */
export function beginSeries(metrics: SourceMetrics, kind: KubeKind): void {
  const { events, lists, watches, relists, badObjects, badParts } = metrics;
  for (const verb of ["put", "delete"]) events.inc({ source: "kube", kind, verb }, 0);
  for (const result of listResults) lists.inc({ kind, result }, 0);
  for (const result of watchResults) watches.inc({ kind, result }, 0);
  for (const reason of relistReasons) relists.inc({ kind, reason }, 0);
  badObjects.inc({ kind }, 0);
  badParts.inc({ kind }, 0);
}
