import { kubePositionSource, type Position, type PositionKind, positionKinds } from "@kpng/model/forward.ts";
import type { Health } from "@kpng/process/health/health.ts";
import { addGauge } from "@kpng/process/health/metrics.ts";
import type { Log } from "@kpng/process/log.ts";
import type { CurrencySink, Origin, Versions } from "@kpng/source/source.ts";
import type { Registry } from "prom-client";
import type { Snapshot } from "./snapshot.ts";

/**
 * How new the state of a store is, according to its source: the position of each snapshot, and whether the newest
 * snapshot is known to be the current state of the source's server.
 */
export class Currency implements CurrencySink {
  readonly #instance: string;
  readonly #listeners = new Set<(event: CurrencyEvent) => void>();
  /** Versions up to which the state is equal to the source's. */
  readonly #current = new Map<PositionKind, bigint>();
  /** Versions of the list or event that last changed each kind. */
  readonly #changed = new Map<PositionKind, bigint>();
  #staleReason: string | undefined;

  /** `instance` becomes the source of positions whose versions are revisions of the store. */
  constructor(instance: string) {
    this.#instance = instance;
  }

  /** The reason why it is unknown whether the state is current; undefined while the state is known to be current. */
  get staleReason(): string | undefined {
    return this.#staleReason;
  }

  /** Calls `listener`, as long as the store lives, when it becomes stale or fresh or is stale for another reason. */
  observe(listener: (event: CurrencyEvent) => void): void {
    this.#listeners.add(listener);
  }

  markStale(reason: string): void {
    const before = this.#staleReason;
    if (reason === before) return;
    this.#staleReason = reason;
    const kind = before === undefined ? "stale" : "still-stale";
    for (const listener of this.#listeners) listener({ kind, reason });
  }

  markFresh(): void {
    if (this.#staleReason === undefined) return;
    this.#staleReason = undefined;
    for (const listener of this.#listeners) listener({ kind: "fresh" });
  }

  confirm(versions: Versions): void {
    for (const kind of positionKinds) {
      const version = versions[kind];
      // This is not the maximum, because an etcd that lost data counts from a lower version.
      if (version !== undefined) this.#current.set(kind, version);
    }
  }

  /**
   * Returns the position of the snapshot `next`; `before` is the previous snapshot. To be called for each update, in
   * order.
   */
  positionOf(before: Snapshot, next: Snapshot, revision: number, origin: Origin | undefined): Position {
    if (origin?.position !== undefined) return origin.position;
    const { versions = {}, clusterId } = origin ?? {};
    this.confirm(versions);
    for (const kind of positionKinds) {
      const version = versions[kind];
      const changed = this.#changed.get(kind);
      if (version === undefined) continue;
      // After the server's counter went back, too, the version of the last change must not exceed `current`.
      if (changed === undefined || version < changed || isChanged(before, next, kind)) this.#changed.set(kind, version);
    }
    const isVersioned = this.#current.size > 0;
    const recordOf = (versions: ReadonlyMap<PositionKind, bigint>): Record<PositionKind, bigint> => {
      const version = (kind: PositionKind): bigint => (isVersioned ? (versions.get(kind) ?? 0n) : BigInt(revision));
      return { services: version("services"), slices: version("slices"), nodes: version("nodes") };
    };
    const source = isVersioned ? kubePositionSource(clusterId) : this.#instance;
    return { source, ...recordOf(this.#changed), current: recordOf(this.#current) };
  }
}

/** Event that a store became stale, is stale for another reason, or became fresh. */
type CurrencyEvent = { readonly kind: "stale" | "still-stale"; readonly reason: string } | { readonly kind: "fresh" };

function isChanged(before: Snapshot, next: Snapshot, kind: PositionKind): boolean {
  const field = kind === "slices" ? "slicesByService" : kind;
  return next[field] !== before[field];
}

/** Reports whether the state of a store is known to be current, as log lines, health and a metric. */
export function observeCurrency(
  { currency }: { readonly currency: Currency },
  { log, health, metrics }: { readonly log: Log; readonly health: Health; readonly metrics: Registry },
): void {
  const help =
    "1 while the state may be out of date: the server of the source does not answer, refuses requests, or is listed again";
  addGauge(metrics, "kpng_source_stale", help, () => (currency.staleReason === undefined ? 0 : 1));
  const part = "source/current";
  currency.observe((event) => {
    if (event.kind !== "fresh") {
      // Nodes prefer other watchers, but still need this one if all watchers are stale.
      health.set(part, { isHealthy: false, isReady: true, reason: `the state may be out of date: ${event.reason}` });
      if (event.kind === "stale") log.error("the state may be out of date", { reason: event.reason });
    } else {
      health.setReady(part);
      log.info("the state is current again");
    }
  });
}
