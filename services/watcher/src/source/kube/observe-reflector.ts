import type { Health } from "@kpng/process/health/health.ts";
import type { Log } from "@kpng/process/log.ts";
import { Counter, Gauge, type Registry } from "prom-client";
import { type ConnectedGauge, makeConnectedGauge } from "../probe-server.ts";
import { describeFailure, type KubeKind, type RequestFailure } from "./connection.ts";
import { type ReflectorObserver, relistReasons } from "./reflector.ts";

interface ObserverOptions {
  readonly kind: KubeKind;
  readonly metrics: SourceMetrics;
  readonly health: Health;
  readonly log: Log;
  /** True if the watcher can serve without this kind. The kind is then not part of its health. */
  readonly isOptional?: boolean | undefined;
}

/** Returns the observer of one kind. The process is not ready until the first list of a kind that is not optional. */
export function observeReflector({
  kind,
  metrics,
  health,
  log: parent,
  isOptional = false,
}: ObserverOptions): ReflectorObserver {
  const part = `source/kube/${kind}`;
  const log = parent.with({ source: "kube", kind });
  let isListed = false;
  let isFailing = false;
  beginSeries(metrics, kind);
  const setConnected = (isConnected: boolean): void => {
    if (!isOptional) metrics.connected.set({ source: "kube", kind }, Number(isConnected));
  };
  setConnected(false);
  const setReady = (): void => {
    if (isListed && !isOptional) health.setReady(part);
    isFailing = false;
  };
  const setFailing = (reason: string): void => {
    if (!isOptional) health.setFailing(part, reason);
    isFailing = true;
  };
  if (!isOptional) health.setWaiting(part, `waiting for the first list of ${kind}`);
  return {
    listed: (objectCount, elapsedMs) => {
      metrics.lists.inc({ kind, result: "ok" });
      metrics.lastProgress.set({ kind }, Date.now() / 1000);
      setConnected(true);
      log.info("listed", { objectCount, elapsedMs: Math.round(elapsedMs) });
      isListed = true;
      setReady();
    },
    watchClosed: () => metrics.watches.inc({ kind, result: "closed" }),
    failed: (failure, retryMs) => {
      const counter = failure.verb === "list" ? metrics.lists : metrics.watches;
      counter.inc({ kind, result: failure.kind });
      setConnected(failure.kind === "expired");
      const reason = describeFailure(failure);
      // Not a fault: the server keeps a limited history. The following list recovers.
      if (failure.kind === "expired") return log.info("watch history expired", { reason, retryMs });
      const message = failure.verb === "list" ? "list failed" : "watch failed";
      if (isOptional) log.info(message, { reason, retryMs });
      else log.error(message, { reason, retryMs });
      setFailing(reason);
    },
    watchListRefused: (failure) => {
      metrics.watches.inc({ kind, result: "watch-list-refused" });
      log.info("streamed lists not supported, using paged lists", { reason: describeFailure(failure) });
    },
    relisting: (reason) => {
      metrics.relists.inc({ kind, reason });
      log.info("listing again", { reason });
    },
    heldBack: ({ currentCount, deletedCount }, retryMs) => {
      metrics.lists.inc({ kind, result: "braked" });
      const reason = `a list would delete ${deletedCount} of ${currentCount} ${kind}; listing again to confirm it`;
      health.set(part, { isHealthy: false, isReady: true, reason });
      log.error("deletions held: a list would delete most objects", { reason, retryMs });
    },
    progressed: (changes) => {
      metrics.lastProgress.set({ kind }, Date.now() / 1000);
      setConnected(true);
      for (const verb of ["put", "delete"] as const) metrics.events.inc({ source: "kube", kind, verb }, changes[verb]);
      if (isFailing) {
        log.info("recovered");
        setReady();
      }
    },
    bad: (key, problem) => {
      metrics.badObjects.inc({ kind });
      if (problem !== undefined) log.error("invalid object, keeping its last valid value", { object: key, problem });
    },
    partsSkipped: (key, fresh, count) => {
      metrics.badParts.inc({ kind }, count);
      for (const problem of fresh) log.error("invalid part of an object skipped", { object: key, problem });
    },
    skipped: (key, note) => log.info("object skipped", { object: key, note }),
  };
}

/**
 * Metrics of the source `kpng kube`, with label `kind`. A reflector lists and watches the objects of one kind; its
 * observer updates these metrics.
 */
interface SourceMetrics {
  readonly events: Counter<"source" | "kind" | "verb">;
  readonly lists: Counter<"kind" | "result">;
  readonly watches: Counter<"kind" | "result">;
  readonly relists: Counter<"kind" | "reason">;
  readonly badObjects: Counter<"kind">;
  readonly badParts: Counter<"kind">;
  readonly lastProgress: Gauge<"kind">;
  readonly connected: ConnectedGauge;
}

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
