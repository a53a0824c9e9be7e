import { Counter, Gauge, type Registry } from "prom-client";
import { type ConnectedGauge, makeConnectedGauge } from "../../connected-gauge.ts";
import type { RequestFailure } from "../client/request-failure.ts";
import type { KubeKind } from "../request/resource.ts";

/**
 * Metrics of the source `kpng kube`, with label `kind`. A reflector lists and watches the objects of one kind; its
 * observer updates these metrics.
 */
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

/**
 * Registers the metrics. Call it once per registry. `kubeSource` calls it, and passes the result to the observer of
 * each kind. Separate from the observer, because one set of metrics serves the observers of all kinds.
 */
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

/** Results of failed requests; `RequestFailure` explains each. */
const failureKinds = ["refused", "expired", "lost", "silent", "garbled"] as const satisfies RequestFailure["kind"][];
/** Results of a list. "braked", besides "ok": deletions of the list are held, because they are nearly all objects. */
const listResults = ["ok", ...failureKinds, "braked"] as const;
/**
 * Results of a watch. "closed": the server ended it without an error, as it regularly does. "watch-list-refused": the
 * server does not stream lists, so the reflector uses paged lists from then on.
 */
const watchResults = ["closed", ...failureKinds, "watch-list-refused"] as const;
/**
 * Reasons for another list.
 *
 * - expired: the server no longer has the history after our resourceVersion.
 * - silent: consecutive watches failed, the last one because no data arrived.
 * - refused: consecutive watches failed, the last one for any other reason.
 * - went-back: the server's resourceVersion is older than ours, for example after a restore of etcd.
 * - stale: the server answers again after it did not for `--stale-after`, or is another cluster's.
 * - braked: the deletions of the previous list are held, and a second one must confirm them.
 */
const relistReasons = ["expired", "silent", "refused", "went-back", "stale", "braked"] as const;

/** Reason why a kind is listed again after its first list. */
export type RelistReason = (typeof relistReasons)[number];

/**
 * Creates all series of a kind with value 0: a rate over a series that starts with its first event would miss that
 * event.
 */
export function beginSeries(metrics: SourceMetrics, kind: KubeKind): void {
  const { events, lists, watches, relists, badObjects, badParts } = metrics;
  for (const verb of ["put", "delete"]) events.inc({ source: "kube", kind, verb }, 0);
  for (const result of listResults) lists.inc({ kind, result }, 0);
  for (const result of watchResults) watches.inc({ kind, result }, 0);
  for (const reason of relistReasons) relists.inc({ kind, reason }, 0);
  badObjects.inc({ kind }, 0);
  badParts.inc({ kind }, 0);
}
