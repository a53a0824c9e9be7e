import type { ServerResponse } from "node:http";
import { type Family, families } from "@kpng/model/address.ts";
import type { Health } from "@kpng/process/health/health.ts";
import { type AnswerPage, type StatusAddresses, statusServerTasks } from "@kpng/process/health/status-server.ts";
import type { Task } from "@kpng/process/task.ts";
import { Counter, type Registry } from "prom-client";
import type { SyncObserver, SyncUpdate, ViewUpdate } from "../types/sync-update.ts";
import { familyLabels } from "./proxy-metrics.ts";

interface ProxyHealthOptions {
  /** Time within which a change must be applied, in milliseconds. Default 60 000, twice kube-proxy's syncPeriod. */
  readonly lateMs?: number | undefined;
  readonly now?: (() => number) | undefined;
}

/** Duration after which a sync counts as hanging, in milliseconds. */
const stuckMs = 600_000;

interface FamilyHealth {
  /** Arrival time of the oldest change that is not yet in force; undefined if all changes are. */
  pendingMs: number | undefined;
  /** Arrival time of the oldest change that arrived during the running sync and is not part of it. */
  nextMs: number | undefined;
  /** When this family's rules were last put into force; undefined if this process has not done so. */
  updatedMs: number | undefined;
  /** True if the running sync has put this family's rules into force. */
  isDone: boolean;
}

/** Answer to a health probe, with kube-proxy's fields and `reason`. */
interface HealthAnswer {
  readonly isOk: boolean;
  readonly body: Readonly<Record<string, unknown>>;
}

/**
 * Health of a service proxy in kube-proxy's terms.
 *
 * - The kubelet probes /livez; 503 means that a sync hangs, and the kubelet restarts the process.
 * - Load balancers probe /healthz; 503 means that rules are late or that the node is about to be removed, and the load
 *   balancer sends its traffic elsewhere.
 *
 * Installed rules work without a watcher and without this process. So neither path fails because the watcher is gone or
 * because nothing has been synced yet; readiness shows that. A proxy that carries traffic serves nothing before its
 * first sync, so its `/healthz` fails until then (`requireFirstSync`). *Source:* kube-proxy
 * `healthcheck/proxy_health.go`.
 */
export class ProxyHealth implements SyncObserver {
  readonly #options: ProxyHealthOptions;
  readonly #families = new Map<Family, FamilyHealth>();
  #runningSinceMs: number | undefined;
  #isNodeEligible = true;
  #isNodeKnown = true;
  #needsFirstSync = false;

  constructor(options: ProxyHealthOptions = {}) {
    this.#options = options;
    this.setFamilies(families);
  }

  setFamilies(families: readonly Family[]): void {
    this.#families.clear();
    for (const family of families) {
      this.#families.set(family, { pendingMs: undefined, nextMs: undefined, updatedMs: undefined, isDone: false });
    }
  }

  /** Makes health fail until the first successful sync, for a proxy that carries the traffic itself. */
  requireFirstSync(): void {
    this.#needsFirstSync = true;
  }

  queued({ view, instance, isFromDisk }: ViewUpdate): void {
    const nowMs = this.#nowMs();
    for (const family of this.#families.values()) {
      if (this.#runningSinceMs === undefined) family.pendingMs ??= nowMs;
      else family.nextMs ??= nowMs;
    }
    // A Go watcher never sends a Node; a view from our watcher without a Node means that the cluster does not have that
    // Node.
    this.#isNodeKnown = view.node !== undefined || instance === "" || isFromDisk === true;
    this.#isNodeEligible = this.#isNodeKnown && (view.node?.isEligible ?? true);
  }

  /** Called when nothing is pending any more, because the changes cancelled each other out. */
  settled(): void {
    for (const family of this.#families.values()) family.pendingMs = undefined;
  }

  started(): void {
    this.#runningSinceMs = this.#nowMs();
    for (const family of this.#families.values()) family.isDone = false;
  }

  /** Must be called when the rules of one family are in force, i.e. after a sync or a repair of that family. */
  setInForce(name: Family): void {
    const family = this.#families.get(name);
    if (family === undefined) return;
    family.updatedMs = this.#nowMs();
    family.isDone = true;
  }

  succeeded(_update: SyncUpdate): void {
    for (const family of this.#families.keys()) this.setInForce(family);
    this.#ended();
  }

  failed(): void {
    this.#ended();
  }

  #ended(): void {
    for (const family of this.#families.values()) {
      // A family that a sync without changes (a full one) left behind has waited since that sync began.
      family.pendingMs = family.isDone ? family.nextMs : (family.pendingMs ?? this.#runningSinceMs);
      family.nextMs = undefined;
    }
    this.#runningSinceMs = undefined;
  }

  /**
   * False if a change has waited too long. True before the first sync has succeeded, unless `requireFirstSync` was
   * called.
   */
  isFamilyHealthy(family: Family): boolean {
    return this.#fault(family) === undefined;
  }

  #fault(name: Family): string | undefined {
    const family = this.#families.get(name);
    if (family === undefined) return undefined;
    const { lateMs = 60_000 } = this.#options;
    const { pendingMs, updatedMs } = family;
    if (updatedMs === undefined) {
      return this.#needsFirstSync ? `${familyLabels[name]}: nothing is served yet` : undefined;
    }
    if (pendingMs === undefined || this.#nowMs() - pendingMs < lateMs) return undefined;
    return `${familyLabels[name]}: a change was not applied in time`;
  }

  healthz(): HealthAnswer {
    const faults = [...this.#families.keys()].flatMap((family) => this.#fault(family) ?? []);
    if (!this.#isNodeKnown) faults.push("the cluster has no Node of this name");
    else if (!this.#isNodeEligible) faults.push("the node is about to be removed");
    const isOk = faults.length === 0;
    return { isOk, body: this.#body(isOk, { nodeEligible: this.#isNodeEligible }, faults.join("; ")) };
  }

  livez(): HealthAnswer {
    const runningMs = this.#runningSinceMs === undefined ? 0 : this.#nowMs() - this.#runningSinceMs;
    const isOk = runningMs < stuckMs;
    const reason = isOk ? "" : `a sync has been running for ${Math.round(runningMs / 1_000)} s`;
    return { isOk, body: this.#body(isOk, {}, reason) };
  }

  #body(isOk: boolean, fields: Readonly<Record<string, unknown>>, reason: string): HealthAnswer["body"] {
    const nowMs = this.#nowMs();
    const updated = [...this.#families].flatMap(([family, { updatedMs }]) =>
      updatedMs === undefined ? [] : [{ family, updatedMs }],
    );
    const lastMs = Math.max(...updated.map(({ updatedMs }) => updatedMs));
    // Go's zero time, which kube-proxy uses for "never".
    const lastUpdated = updated.length === 0 ? "0001-01-01T00:00:00Z" : iso(lastMs);
    const status = updated.map(({ family, updatedMs }) => [
      familyLabels[family],
      { lastUpdated: iso(updatedMs), healthy: this.isFamilyHealthy(family) },
    ]);
    return {
      // As in kube-proxy, because old probers expect a recent time while the proxy is healthy.
      lastUpdated: isOk ? iso(nowMs) : lastUpdated,
      currentTime: iso(nowMs),
      ...fields,
      healthy: [...this.#families.keys()].every((family) => this.isFamilyHealthy(family)),
      ...(updated.length === 0 ? {} : { status: Object.fromEntries(status) }),
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

interface ProxyObserveOptions {
  readonly proxyHealth: ProxyHealth;
  readonly health: Health;
  readonly metrics: Registry;
  /** Answer to `/proxyMode`, e.g. "iptables". */
  readonly mode: string;
}

/**
 * Returns the status servers of a service proxy. They serve /healthz and /livez with kube-proxy's bodies, headers and
 * counters, /proxyMode, and the other paths of a status server. Errors: see `statusServerTasks`.
 */
export function proxyObserveTasks(
  addresses: StatusAddresses,
  { proxyHealth, health, metrics, mode }: ProxyObserveOptions,
): readonly Task[] {
  if (addresses.healthzBindAddress === undefined && addresses.metricsBindAddress === undefined) return [];
  const healthzTotal = createCounter(metrics, "healthz");
  const livezTotal = createCounter(metrics, "livez");
  const pages: AnswerPage = (path, response) => {
    if (path === "/healthz") answerHealth(response, proxyHealth.healthz(), healthzTotal);
    else if (path === "/livez") answerHealth(response, proxyHealth.livez(), livezTotal);
    else if (path === "/proxyMode") response.writeHead(200, { "content-type": "text/plain" }).end(mode);
    else return false;
    return true;
  };
  return statusServerTasks(addresses, { health, metrics, pages });
}

const jsonHeaders = { "content-type": "application/json", "x-content-type-options": "nosniff" };

function answerHealth(response: ServerResponse, { isOk, body }: HealthAnswer, total: Counter<"code">): void {
  const code = isOk ? 200 : 503;
  total.inc({ code: String(code) });
  response.writeHead(code, jsonHeaders).end(JSON.stringify(body));
}

function createCounter(registry: Registry, probe: "healthz" | "livez"): Counter<"code"> {
  return new Counter({
    name: `kubeproxy_proxy_${probe}_total`,
    help: `Cumulative proxy ${probe} HTTP status`,
    labelNames: ["code"] as const,
    registers: [registry],
  });
}
