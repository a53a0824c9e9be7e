import type { Health } from "@kpng/process/health/health.ts";
import type { Log } from "@kpng/process/log.ts";
import { Counter, Gauge, type Registry } from "prom-client";
import type { Kind } from "../source.ts";
import { beginInvalid, makeConnectedGauge, makeInvalidCounter } from "../source-metrics.ts";
import { describeFailure, type RequestFailure } from "./connection.ts";

/**
 * Reports what happens to one kind as log lines, health and metrics. Readers of health know the prefixes `source/` and
 * `objects/` of its parts' names: `Findings`, and programs that print what they wait for.
 */
export class KindReport {
  readonly #kind: Kind;
  readonly #part: string;
  readonly #metrics: SourceMetrics;
  readonly #health: Health;
  readonly #log: Log;
  #isListed = false;
  #isFailing = false;
  /** Why deletions wait for another list; undefined if none wait. */
  #heldReason: string | undefined;

  constructor(kind: Kind, { metrics, health, log }: ReportOptions) {
    this.#kind = kind;
    this.#part = `source/kube/${kind}`;
    this.#metrics = metrics;
    this.#health = health;
    this.#log = log.with({ source: "kube", kind });
    beginSeries(metrics, kind);
    this.#setConnected(false);
    health.setWaiting(this.#part, `waiting for the first list of ${kind}`);
  }

  listed(objectCount: number, elapsedMs: number): void {
    this.#metrics.lists.inc({ kind: this.#kind, result: "ok" });
    this.#reached();
    this.#log.info("objects listed", { objectCount, elapsedMs: Math.round(elapsedMs) });
    this.#isListed = true;
    this.#heldReason = undefined;
    this.#setWorking();
  }

  /** Reports that a watch ended normally. */
  watchClosed(): void {
    this.#metrics.watches.inc({ kind: this.#kind, result: "closed" });
  }

  /** Reports that a list or watch failed and will be retried after `retryMs`. */
  failed(failure: RequestFailure, retryMs: number): void {
    const counter = failure.verb === "list" ? this.#metrics.lists : this.#metrics.watches;
    counter.inc({ kind: this.#kind, result: failure.kind });
    this.#setConnected(failure.kind === "expired");
    const reason = describeFailure(failure);
    // This is not a fault: the server answers, but keeps only a limited history. The next list recovers.
    if (failure.kind === "expired") {
      this.#log.info("watch history expired at the API server, listing again", { reason, retryMs });
      return;
    }
    this.#log.error(failure.verb === "list" ? "list failed" : "watch failed", { reason, retryMs });
    this.#health.setFailing(this.#part, reason);
    this.#isFailing = true;
  }

  relisting(reason: RelistReason): void {
    this.#metrics.relists.inc({ kind: this.#kind, reason });
    this.#log.info("listing all objects again", { reason });
  }

  /** Reports, after `listed`, that deletions in that list are held back until another list begins after `retryMs`. */
  deletionsHeld({ currentCount, deletedCount }: MassDeletion, retryMs: number): void {
    this.#metrics.lists.inc({ kind: this.#kind, result: "braked" });
    const reason = `a list would delete ${deletedCount} of ${currentCount} ${this.#kind}; listing again to confirm it`;
    this.#heldReason = reason;
    this.#setWorking();
    this.#log.error("a list of the API server lacks most objects: not deleting them until a second list confirms it", {
      reason,
      retryMs,
    });
  }

  /** Reports that the server sent something: changes, a bookmark, or the start of a watch. */
  progressed(): void {
    this.#reached();
    if (!this.#isFailing) return;
    this.#log.info("API server answers again");
    this.#setWorking();
  }

  /** Reports that an object is invalid. `problem` is undefined if it was reported before. */
  objectInvalid(key: string, problem: string | undefined): void {
    this.#metrics.invalid.inc({ kind: this.#kind, skipped: "object" });
    if (problem !== undefined) {
      this.#log.error("invalid object, keeping its last valid value", { object: key, problem });
    }
  }

  /**
   * Reports that `count` parts of an object are invalid and not served. `problem` is undefined if it was reported
   * before.
   */
  partsSkipped(key: string, problem: string | undefined, count: number): void {
    this.#metrics.invalid.inc({ kind: this.#kind, skipped: "part" }, count);
    if (problem !== undefined) this.#log.error("invalid part of an object skipped", { object: key, problem });
  }

  /**
   * Sets the problems of all invalid objects, by key. These problems make the watcher neither unready nor unhealthy.
   */
  invalidObjects(problems: ReadonlyMap<string, string>): void {
    const shown = [...problems.entries().take(3)].map(([key, problem]) => `${key} (${problem})`);
    if (problems.size > shown.length) shown.push(`and ${problems.size - shown.length} more`);
    const reason = shown.length === 0 ? "" : `invalid: ${shown.join(", ")}`;
    this.#health.set(`objects/${this.#kind}`, { isHealthy: true, isReady: true, reason });
  }

  #reached(): void {
    this.#metrics.lastProgress.setToCurrentTime({ kind: this.#kind });
    this.#setConnected(true);
  }

  #setConnected(isConnected: boolean): void {
    this.#metrics.connected.set({ source: "kube", kind: this.#kind }, Number(isConnected));
  }

  /** Sets the health of a kind whose requests succeed. While deletions wait, it stays unhealthy. */
  #setWorking(): void {
    this.#isFailing = false;
    const reason = this.#heldReason;
    if (reason !== undefined) this.#health.set(this.#part, { isHealthy: false, isReady: true, reason });
    else if (this.#isListed) this.#health.setReady(this.#part);
  }
}

/** Numbers of a kind's objects: all that the sink has, and those that a list lacks. */
export interface MassDeletion {
  readonly currentCount: number;
  readonly deletedCount: number;
}

interface ReportOptions {
  readonly metrics: SourceMetrics;
  readonly health: Health;
  readonly log: Log;
}

type SourceMetrics = ReturnType<typeof makeSourceMetrics>;

/** Registers the metrics of the source `kpng kube`. Must be called once per registry. */
export function makeSourceMetrics(registry: Registry) {
  const registers = [registry];
  const counter = <L extends string>(name: string, help: string, ...labelNames: L[]): Counter<L> =>
    new Counter({ name, help, labelNames, registers });
  return {
    lists: counter("kpng_source_lists_total", "Lists requested from the API server, by result", "kind", "result"),
    watches: counter(
      "kpng_source_watches_total",
      "Watches requested from the API server, by how they ended",
      "kind",
      "result",
    ),
    relists: counter("kpng_source_relists_total", "Lists after the first one, by reason", "kind", "reason"),
    invalid: makeInvalidCounter(registry),
    lastProgress: new Gauge({
      name: "kpng_source_last_progress_timestamp_seconds",
      help: "Time of the last response or event of the API server for this kind; advances about once a minute without changes",
      labelNames: ["kind"],
      registers,
    }),
    connected: makeConnectedGauge(registry),
  };
}

/**
 * Reasons to list a kind again.
 *
 * - expired: the server no longer has the history after our resourceVersion.
 * - silent: no data arrived on a watch, not even the end of the watch.
 * - refused: the server refused the watch, or sent an unexpected response.
 * - went-back: the server's resourceVersion is older than ours (for example, after etcd was restored), or the server
 *   now serves a different cluster.
 * - stale: the server answers again after `--stale-after` or more of silence.
 * - braked: the deletions of the previous list wait for this list.
 */
const relistReasons = ["expired", "silent", "refused", "went-back", "stale", "braked"] as const;

export type RelistReason = (typeof relistReasons)[number];

const failureKinds = ["refused", "expired", "lost", "silent", "garbled"] as const satisfies RequestFailure["kind"][];

/** Starts all series of a kind at 0, because a rate over a series that starts with its first event misses that event. */
export function beginSeries({ lists, watches, relists, invalid }: SourceMetrics, kind: Kind): void {
  // "braked" counts the lists whose deletions wait for a second list, which count as "ok", too.
  for (const result of ["ok", ...failureKinds, "braked"]) lists.inc({ kind, result }, 0);
  // "closed" is the regular end of a watch.
  for (const result of ["closed", ...failureKinds]) watches.inc({ kind, result }, 0);
  for (const reason of relistReasons) relists.inc({ kind, reason }, 0);
  beginInvalid(invalid, kind);
}
