import type { Health } from "@kpng/process/health.ts";
import type { Log } from "@kpng/process/log.ts";
import { Counter, Gauge, type Registry } from "prom-client";
import { type ConnectedGauge, makeConnectedGauge } from "../../connected-gauge.ts";
import { describeFailure, type Failure } from "../client/request-failure.ts";
import type { KubeKind } from "../request/resource.ts";
import type { Braked } from "./collection-handler.ts";

/** Why everything is listed again. */
export type RelistReason = "expired" | "silent" | "refused" | "went-back" | "braked";

/** What one reflector says of its work, to people (log, health) and to metrics. */
export interface KindObserver {
  listed(objectCount: number, elapsedMs: number): void;
  /** The watch was answered and ended in order. */
  watchClosed(): void;
  /** `retryMs`: when it is tried again. */
  failed(failure: Failure, retryMs: number): void;
  watchListRefused(failure: Failure): void;
  relisting(reason: RelistReason): void;
  braked(braked: Braked, retryMs: number): void;
  /** Something came: changes, or none with a bookmark or the beginning of a watch. */
  progressed(changes: Readonly<Record<"put" | "delete", number>>): void;
  bad(key: string, problem: string): void;
  passedOver(key: string, note: string): void;
}

/** Metrics of the source, with label `kind`. */
export interface SourceMetrics {
  readonly events: Counter<"source" | "kind" | "verb">;
  readonly lists: Counter<"kind" | "result">;
  readonly watches: Counter<"kind" | "result">;
  readonly relists: Counter<"kind" | "reason">;
  readonly badObjects: Counter<"kind">;
  readonly lastProgress: Gauge<"kind">;
  readonly connected: ConnectedGauge;
}

/** Registers the metrics; once per registry. */
export function makeSourceMetrics(registry: Registry): SourceMetrics {
  const registers = [registry];
  return {
    events: new Counter({
      name: "kpng_source_events_total",
      help: "Puts and deletes that a source received, first lists not counted.",
      labelNames: ["source", "kind", "verb"],
      registers,
    }),
    lists: new Counter({
      name: "kpng_source_lists_total",
      help: "Complete lists asked of the API server, by what came of them.",
      labelNames: ["kind", "result"],
      registers,
    }),
    watches: new Counter({
      name: "kpng_source_watches_total",
      help: "Watches asked of the API server, by how they ended.",
      labelNames: ["kind", "result"],
      registers,
    }),
    relists: new Counter({
      name: "kpng_source_relists_total",
      help: "Lists that became necessary after the first, by reason.",
      labelNames: ["kind", "reason"],
      registers,
    }),
    badObjects: new Counter({
      name: "kpng_source_bad_objects_total",
      help: "Objects that could not be understood; their last good value stays.",
      labelNames: ["kind"],
      registers,
    }),
    lastProgress: new Gauge({
      name: "kpng_source_last_progress_timestamp_seconds",
      help: "When the API server last said anything of this kind; about once a minute if nothing changes.",
      labelNames: ["kind"],
      registers,
    }),
    connected: makeConnectedGauge(registry),
  };
}

const listResults = ["ok", "refused", "expired", "lost", "silent", "garbled", "braked"] as const;
const watchResults = ["closed", "refused", "expired", "lost", "silent", "garbled", "watch-list-refused"] as const;
const relistReasons = ["expired", "silent", "refused", "went-back", "braked"] as const satisfies RelistReason[];

/** A rate over a series that appears with its first event misses that event. */
function beginSeries({ events, lists, watches, relists, badObjects }: SourceMetrics, kind: KubeKind): void {
  for (const verb of ["put", "delete"]) events.inc({ source: "kube", kind, verb }, 0);
  for (const result of listResults) lists.inc({ kind, result }, 0);
  for (const result of watchResults) watches.inc({ kind, result }, 0);
  for (const reason of relistReasons) relists.inc({ kind, reason }, 0);
  badObjects.inc({ kind }, 0);
}

export interface ObserverOptions {
  readonly kind: KubeKind;
  readonly metrics: SourceMetrics;
  readonly health: Health;
  readonly log: Log;
  /** True if the process serves as well without this kind: it is then no part of its health. */
  readonly isOptional?: boolean | undefined;
}

/** Returns the observer of one kind and makes its part of the health wait for the first list. */
export function observeKind({ kind, metrics, health, log: parent, isOptional = false }: ObserverOptions): KindObserver {
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
  if (!isOptional) health.setWaiting(part, `${kind} have not been listed yet`);
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
      // Forgotten history is in the order of things: the list that follows mends it.
      if (failure.kind === "expired") return log.info("history is gone", { reason, retryMs });
      const message = failure.verb === "list" ? "list failed" : "watch failed";
      if (isOptional) log.info(message, { reason, retryMs });
      else log.error(message, { reason, retryMs });
      setFailing(reason);
    },
    watchListRefused: (failure) => {
      metrics.watches.inc({ kind, result: "watch-list-refused" });
      log.info("the server does not stream lists, listing by pages", { reason: describeFailure(failure) });
    },
    relisting: (reason) => {
      metrics.relists.inc({ kind, reason });
      log.info("listing again", { reason });
    },
    braked: ({ heldCount, deletedCount }, retryMs) => {
      metrics.lists.inc({ kind, result: "braked" });
      const reason = `a list would delete ${deletedCount} of ${heldCount} ${kind}; held until a second one agrees`;
      log.error("brake: a list is not taken", { reason, retryMs });
      setFailing(reason);
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
      log.error("an object cannot be understood, its last good value stays", { object: key, problem });
    },
    passedOver: (key, note) => log.info("an object is passed over", { object: key, note }),
  };
}
