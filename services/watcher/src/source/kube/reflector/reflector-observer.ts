import type { Health } from "@kpng/process/health/health.ts";
import type { Log } from "@kpng/process/log.ts";
import { describeFailure, type RequestFailure } from "../client/request-failure.ts";
import type { KubeKind } from "../request/resource.ts";
import type { HeldBack } from "./collection-handler.ts";
import { beginSeries, type RelistReason, type SourceMetrics } from "./source-metrics.ts";

/**
 * Reports the events of one reflector and its object cache as log lines, health and metrics. It is separate from the
 * reflector, which has no log and no metrics of its own.
 */
export interface ReflectorObserver {
  listed(objectCount: number, elapsedMs: number): void;
  /** A watch ended normally. */
  watchClosed(): void;
  /** A list or watch failed and is retried after `retryMs`. */
  failed(failure: RequestFailure, retryMs: number): void;
  /** The server does not support streamed lists. */
  watchListRefused(failure: RequestFailure): void;
  relisting(reason: RelistReason): void;
  /** A list would delete most objects. Its deletions are held until the list after `retryMs` confirms them. */
  heldBack(list: HeldBack, retryMs: number): void;
  /** The server sent something: a number of changes, a bookmark, or the start of a watch. */
  progressed(changes: Readonly<Record<"put" | "delete", number>>): void;
  /** An object is invalid. `problem` is undefined if it was reported before. */
  bad(key: string, problem: string | undefined): void;
  /** `count` parts of an object are invalid and not served. `fresh`: the problems that are new. */
  partsSkipped(key: string, fresh: readonly string[], count: number): void;
  /** An object is valid, but no proxy needs it. */
  skipped(key: string, note: string): void;
}

interface ObserverOptions {
  readonly kind: KubeKind;
  readonly metrics: SourceMetrics;
  readonly health: Health;
  readonly log: Log;
  /** True if the watcher can serve without this kind. The kind is then not part of its health. */
  readonly isOptional?: boolean | undefined;
}

/**
 * Returns the observer of one kind. The process is not ready until the first list of a kind that is not optional.
 * `kubeSource` calls it for each kind.
 */
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
