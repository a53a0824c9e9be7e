import type { Family } from "@kpng/model/address.ts";
import type { SyncObserver, SyncUpdate } from "../types/sync-update.ts";
import type { ViewUpdate } from "../types/view-update.ts";
import { familyLabels } from "./family-labels.ts";

export interface ProxyHealthOptions {
  /** Those that the backend makes rules for, as far as is known before it has begun; see `setFamilies`. */
  readonly families: readonly Family[];
  /** How long a change may wait to be in force, in milliseconds. Default 60 000: twice kube-proxy's syncPeriod. */
  readonly lateMs?: number | undefined;
  /** A sync that runs longer hangs, in milliseconds. Default 600 000: no sync that makes progress takes that long. */
  readonly stuckMs?: number | undefined;
  /** Milliseconds since 1970. Default Date.now. */
  readonly now?: (() => number) | undefined;
}

/** What a prober is told; the fields are kube-proxy's, but for `reason`. */
export interface HealthAnswer {
  readonly isOk: boolean;
  readonly body: Readonly<Record<string, unknown>>;
}

/**
 * Whether this node's rules are fit to be used, for those who act upon it:
 *
 * | who | asks | 503 means |
 * |---|---|---|
 * | kubelet | livez | a sync hangs: restart the process. Nothing that a restart does not mend |
 * | load balancers | healthz | rules are behind by more than `lateMs`, or the node is about to go: send traffic
 * elsewhere |
 *
 * Rules that stand go on working without a watcher and without this process, so neither fails because the watcher is
 * gone or because nothing was synced yet: that is readiness. *Source:* kube-proxy `healthcheck/proxy_health.go`.
 */
export class ProxyHealth implements SyncObserver {
  readonly #options: ProxyHealthOptions;
  /** When the oldest change came that is not in force; undefined while every one is. */
  #oldestPendingMs: number | undefined;
  /** The same for those that came while a sync ran, which does not have them. */
  #oldestNextMs: number | undefined;
  #lastUpdatedMs: number | undefined;
  #runningSinceMs: number | undefined;
  #isNodeEligible = true;
  #families: readonly Family[];

  constructor(options: ProxyHealthOptions) {
    this.#options = options;
    this.#families = options.families;
  }

  /** For a backend that has found out which families the node has: only those are told of. */
  setFamilies(families: readonly Family[]): void {
    this.#families = families;
  }

  queued({ view, instance, isFromDisk }: ViewUpdate): void {
    if (this.#runningSinceMs === undefined) this.#oldestPendingMs ??= this.#nowMs();
    else this.#oldestNextMs ??= this.#nowMs();
    // A Go watcher says nothing of nodes; from ours, no node means that the cluster does not know it.
    const isUnknown = view.node === undefined && (instance === "" || isFromDisk === true);
    this.#isNodeEligible = isUnknown || view.node?.isEligible === true;
  }

  /** Changes that undid each other are in force already. */
  settled(): void {
    this.#oldestPendingMs = undefined;
  }

  started(): void {
    this.#runningSinceMs = this.#nowMs();
  }

  succeeded(_update: SyncUpdate): void {
    this.#lastUpdatedMs = this.#nowMs();
    this.#oldestPendingMs = this.#oldestNextMs;
    this.#oldestNextMs = undefined;
    this.#runningSinceMs = undefined;
  }

  failed(): void {
    this.#oldestPendingMs ??= this.#runningSinceMs;
    this.#oldestNextMs = undefined;
    this.#runningSinceMs = undefined;
  }

  /** True unless a change waits too long; a backend that has not synced yet is not late. */
  get isHealthy(): boolean {
    if (this.#lastUpdatedMs === undefined || this.#oldestPendingMs === undefined) return true;
    return this.#nowMs() - this.#oldestPendingMs < (this.#options.lateMs ?? 60_000);
  }

  healthz(): HealthAnswer {
    const isOk = this.isHealthy && this.#isNodeEligible;
    const reason = this.#isNodeEligible ? "a change waits too long to be in force" : "the node is about to go";
    return { isOk, body: this.#body(isOk, { nodeEligible: this.#isNodeEligible }, isOk ? "" : reason) };
  }

  livez(): HealthAnswer {
    const runningMs = this.#runningSinceMs === undefined ? 0 : this.#nowMs() - this.#runningSinceMs;
    const isOk = runningMs < (this.#options.stuckMs ?? 600_000);
    return { isOk, body: this.#body(isOk, {}, isOk ? "" : `a sync runs since ${Math.round(runningMs / 1_000)} s`) };
  }

  #body(isOk: boolean, fields: Readonly<Record<string, unknown>>, reason: string): HealthAnswer["body"] {
    const nowMs = this.#nowMs();
    // kube-proxy's zero time, for what never was.
    const lastUpdated = this.#lastUpdatedMs === undefined ? "0001-01-01T00:00:00Z" : iso(this.#lastUpdatedMs);
    const isHealthy = this.isHealthy;
    const status = this.#families.map((family) => [familyLabels[family], { lastUpdated, healthy: isHealthy }]);
    return {
      // As in kube-proxy: old probers want to see a recent time while all is well.
      lastUpdated: isOk ? iso(nowMs) : lastUpdated,
      currentTime: iso(nowMs),
      ...fields,
      healthy: isHealthy,
      ...(this.#lastUpdatedMs === undefined ? {} : { status: Object.fromEntries(status) }),
      ...(reason === "" ? {} : { reason }),
    };
  }

  #nowMs(): number {
    return (this.#options.now ?? Date.now)();
  }
}

function iso(ms: number): string {
  return new Date(ms).toISOString();
}
