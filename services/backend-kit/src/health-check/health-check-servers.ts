import type { Family } from "@kpng/model/address.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { waitMs } from "@kpng/process/wait.ts";
import type { NodePortAddresses } from "@kpng/service-plan/node-port-addresses.ts";
import { Counter, Gauge, type Registry } from "prom-client";
import { type CheckServer, openCheckServer } from "./check-server.ts";
import { type WantedCheck, wantedChecks } from "./wanted-checks.ts";

export interface HealthCheckOptions {
  readonly log: Log;
  readonly metrics: Registry;
  /** What `serviceProxyHealthy` says; asked at each request. */
  readonly isProxyHealthy: () => boolean;
  /**
   * Time between tries to open a port that another program has, in milliseconds. Default 1 000: while a node moves from
   * one service proxy to another nobody answers, and a load balancer gives a node up after a few failed checks.
   */
  readonly retryMs?: number | undefined;
  /** Default {@link waitMs}. */
  readonly wait?: typeof waitMs | undefined;
}

/** Where health checks are answered, per family. */
export type ListenAddresses = Readonly<Record<Family, NodePortAddresses>>;

interface OpenCheck {
  check: WantedCheck;
  /** What must not change for the server to stay. */
  readonly place: string;
  /** Undefined while the port cannot be had. */
  server: CheckServer | undefined;
  /** Why not; "" before the first try. */
  failure: string;
}

/**
 * The servers of all health-check node ports of this node.
 *
 * A server stays open, its connections with it, as long as the Service keeps its port and the node its addresses. A
 * port that cannot be had is logged once and tried again at the next sync and every `retryMs`.
 */
export class HealthCheckServers {
  readonly #options: HealthCheckOptions;
  readonly #metrics: ReturnType<typeof createMetrics>;
  readonly #open = new Map<string, OpenCheck>();
  #addresses: ListenAddresses = { v4: { kind: "all" }, v6: { kind: "all" } };
  #work: Promise<void> = Promise.resolve();

  constructor(options: HealthCheckOptions) {
    this.#options = options;
    this.#metrics = createMetrics(options.metrics);
  }

  /**
   * Makes the servers and their counts agree with a view. Never rejects; resolves when all ports have been tried.
   *
   * Call it after the rules are in force: a load balancer must not be sent here before.
   */
  sync(view: NodeView, addresses: ListenAddresses): Promise<void> {
    return this.#next(async () => {
      this.#addresses = addresses;
      await this.#reconcile(wantedChecks(view));
    });
  }

  /** Retries what could not be opened, until `signal` aborts; then closes everything. */
  async run(signal: AbortSignal): Promise<void> {
    const { retryMs = 1_000, wait = waitMs } = this.#options;
    while (!signal.aborted) {
      await wait(retryMs, signal);
      if (!signal.aborted) await this.#next(() => this.#openMissing());
    }
    await this.#next(() => this.#reconcile([]));
  }

  /** One step at a time: a retry must not open what a sync closes. */
  #next(step: () => Promise<void>): Promise<void> {
    this.#work = this.#work.then(step);
    return this.#work;
  }

  async #reconcile(checks: readonly WantedCheck[]): Promise<void> {
    const wanted = new Map(checks.map((check) => [`${check.service} ${check.family}`, check]));
    // All that goes is closed before anything opens: two Services may have exchanged their ports.
    await Promise.all(
      [...this.#open].map(async ([key, open]) => {
        const check = wanted.get(key);
        if (check !== undefined && this.#placeOf(check) === open.place) return;
        this.#open.delete(key);
        await open.server?.close();
      }),
    );
    for (const [key, check] of wanted) {
      const open = this.#open.get(key);
      if (open === undefined) {
        this.#open.set(key, { check, place: this.#placeOf(check), server: undefined, failure: "" });
      } else open.check = check;
    }
    await this.#openMissing();
  }

  async #openMissing(): Promise<void> {
    for (const open of this.#open.values()) {
      if (open.server !== undefined) continue;
      const { family, port } = open.check;
      const state = () => ({ ...open.check, isProxyHealthy: this.#options.isProxyHealthy() });
      try {
        open.server = await openCheckServer(family, this.#addresses[family], port, state);
        open.failure = "";
      } catch (error) {
        this.#fail(open, reasonOf(error));
      }
    }
    const servers = [...this.#open.values()];
    this.#metrics.open.set(servers.filter(({ server }) => server !== undefined).length);
    this.#metrics.missing.set(servers.filter(({ server }) => server === undefined).length);
  }

  #fail(open: OpenCheck, reason: string): void {
    this.#metrics.failures.inc();
    const { service, family, port } = open.check;
    if (open.failure !== reason) {
      this.#options.log.error("health check cannot listen", { service, family, port, reason });
    }
    open.failure = reason;
  }

  #placeOf({ family, port }: WantedCheck): string {
    return JSON.stringify([port, this.#addresses[family]]);
  }
}

function createMetrics(registry: Registry) {
  const registers = [registry];
  return {
    open: new Gauge({
      name: "kpng_backend_health_checks_open",
      help: "Health-check node ports that are answered, per Service and family",
      registers,
    }),
    missing: new Gauge({
      name: "kpng_backend_health_checks_not_listening",
      help: "Health-check node ports that should be answered and cannot be opened",
      registers,
    }),
    failures: new Counter({
      name: "kpng_backend_health_check_listen_failures_total",
      help: "Failed tries to open a health-check node port",
      registers,
    }),
  };
}
