import { createServer, type Server } from "node:http";
import { type AddressSet, type Family, families, isLinkLocal } from "@kpng/model/address.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { closeOldest, silenceLimits } from "@kpng/process/health/status-server.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { waitMs } from "@kpng/process/wait.ts";
import {
  type NodePortAddresses,
  type NodePortAddressRule,
  resolveNodePortAddresses,
} from "@kpng/service-plan/plan-node.ts";
import { planHealthCheck } from "@kpng/service-plan/plan-service.ts";
import type { HealthCheckPlan } from "@kpng/service-plan/service-plan.ts";
import { Gauge, type Registry } from "prom-client";
import { readLocalAddresses } from "../node-addresses/local-addresses.ts";

/** Options of {@link HealthCheckServers}. */
interface HealthCheckServersOptions {
  readonly log: Log;
  readonly metrics: Registry;
  /** Value of `serviceProxyHealthy` for a family; called at each request. */
  readonly isProxyHealthy: (family: Family) => boolean;
  /** Called after each attempt, with the reasons why addresses cannot be bound; the list is empty if all are bound. */
  readonly onFailures?: ((reasons: readonly string[]) => void) | undefined;
  /**
   * Time between two attempts to open ports that another program occupied, or ports at new addresses of the node, in
   * milliseconds. Default 1 000, which is short because neither proxy answers while a node moves from one service proxy
   * to another, and a load balancer removes a node after a few failed checks.
   */
  readonly retryMs?: number | undefined;
  /** Default {@link waitMs}. */
  readonly wait?: typeof waitMs | undefined;
}

/**
 * Argument of `HealthCheckServers.sync`: a view that contains the health checks to answer, and the addresses to listen
 * on.
 */
interface CheckUpdate {
  readonly view: NodeView;
  /** Called again before each attempt to open ports, because a node may get new addresses while it runs. */
  readonly addresses: () => ListenAddresses;
  /** Families whose rules are installed; the checks of the other family do not change. Default: both. */
  readonly families?: readonly Family[] | undefined;
  /** Services that may have changed since the last call. Default: all. */
  readonly changed?: ReadonlySet<ServiceKey> | "all" | undefined;
}

function keyOf({ service, family }: Pick<DesiredCheck, "service" | "family">): string {
  return `${service} ${family}`;
}

function keysOf(services: Iterable<ServiceKey>): readonly string[] {
  return [...services].flatMap((service) => families.map((family) => keyOf({ service, family })));
}

/** An address and port at which one health check is answered. */
interface Listener {
  /** Key of the health check: Service and family. */
  readonly check: string;
  readonly host: string;
  readonly port: number;
  /** Undefined while the address cannot be bound. */
  server: Server | undefined;
  /** Why the address cannot be bound; "" before the first attempt. */
  failure: string;
}

/**
 * HTTP servers for the health-check node ports of this node. The load balancer of a Service with external traffic
 * policy Local asks them whether the node has endpoints of that Service.
 *
 * A server and its connections stay open as long as the Service keeps its port and the node keeps its address. An
 * address that cannot be bound is logged once and tried again every `retryMs`; meanwhile, the other addresses answer.
 *
 * *Bound:* 8 connections per client, address and port; each new one beyond that replaces the client's oldest. Idle ones
 * end after 15 s. There is no bound for all clients together, with which one of them could keep out load balancers.
 */
export class HealthCheckServers {
  readonly #options: HealthCheckServersOptions;
  readonly #missing: Gauge;
  /** Health checks to answer, by {@link keyOf}. */
  readonly #checks = new Map<string, DesiredCheck>();
  /** By check, host and port. */
  readonly #listeners = new Map<string, Listener>();
  #addresses: () => ListenAddresses = () => ({ v4: { kind: "all" }, v6: { kind: "all" } });
  /** The last step; see `#next`. */
  #work: Promise<void> = Promise.resolve();

  constructor(options: HealthCheckServersOptions) {
    this.#options = options;
    this.#missing = new Gauge({
      name: "kpng_backend_health_checks_not_listening",
      help: "Health-check node ports that cannot be opened at one or more addresses, counted per Service and IP family",
      registers: [options.metrics],
    });
  }

  /**
   * Opens and closes servers, and updates their answers, according to a view. Never rejects; resolves once it has tried
   * to open all ports.
   *
   * Call it after the rules are installed: a good answer makes the load balancer send packets to this node.
   */
  sync({ view, addresses, families: inForce = families, changed = "all" }: CheckUpdate): Promise<void> {
    return this.#next(async () => {
      this.#addresses = addresses;
      const before = changed === "all" ? this.#checks.keys() : keysOf(changed);
      let isChanged = changed === "all";
      for (const key of [...before]) {
        const check = this.#checks.get(key);
        if (check === undefined || !inForce.includes(check.family)) continue;
        this.#checks.delete(key);
        isChanged = true;
      }
      for (const service of changed === "all" ? view.services.keys() : changed) {
        for (const check of desiredChecks(view, service)) {
          if (!inForce.includes(check.family)) continue;
          this.#checks.set(keyOf(check), check);
          isChanged = true;
        }
      }
      if (isChanged) await this.#reconcile();
    });
  }

  /** Reasons why ports cannot be opened, one per address and port. *Shape:* `192.0.2.1 port 31000: …`. */
  get failures(): readonly string[] {
    const failing = [...this.#listeners.values()].filter(({ server }) => server === undefined);
    return failing.map(({ host, port, failure }) => `${host} port ${port}: ${failure}`);
  }

  /** Keeps trying to open missing ports until `signal` aborts, and then closes all servers. */
  async run(signal: AbortSignal): Promise<void> {
    const { retryMs = 1_000, wait = waitMs } = this.#options;
    while (!signal.aborted) {
      await wait(retryMs, signal);
      if (!signal.aborted && this.#checks.size > 0) await this.#next(() => this.#reconcile());
    }
    await this.#next(async () => {
      this.#checks.clear();
      await this.#reconcile();
    });
  }

  /** Runs steps one after another, because a retry must not open a port that a sync closes. */
  #next(step: () => Promise<void>): Promise<void> {
    this.#work = this.#work.then(step);
    return this.#work;
  }

  async #reconcile(): Promise<void> {
    const desired = this.#desiredListeners();
    // Close ports before opening others, because two Services may have exchanged their ports.
    await Promise.all(
      [...this.#listeners].map(async ([key, { server }]) => {
        if (desired.has(key)) return;
        this.#listeners.delete(key);
        server?.closeAllConnections();
        await server?.[Symbol.asyncDispose]();
      }),
    );
    for (const [key, listener] of desired) if (!this.#listeners.has(key)) this.#listeners.set(key, listener);
    for (const listener of this.#listeners.values()) if (listener.server === undefined) await this.#open(listener);
    const missing = [...this.#listeners.values()].filter(({ server }) => server === undefined);
    this.#missing.set(new Set(missing.map(({ check }) => check)).size);
    this.#options.onFailures?.(this.failures);
  }

  #desiredListeners(): ReadonlyMap<string, Listener> {
    const desired = new Map<string, Listener>();
    const addresses = this.#checks.size === 0 ? undefined : this.#addresses();
    for (const [check, { family, port }] of this.#checks) {
      const chosen = addresses?.[family];
      // As in `planNode`, leave out link-local addresses: without a zone, they cannot be bound.
      const hosts =
        chosen?.kind === "listed"
          ? chosen.addresses.filter((address) => !isLinkLocal(address))
          : [family === "v4" ? "0.0.0.0" : "::"];
      for (const host of hosts) {
        desired.set(`${check} ${host} ${port}`, { check, host, port, server: undefined, failure: "" });
      }
    }
    return desired;
  }

  async #open(listener: Listener): Promise<void> {
    const { check, host, port } = listener;
    const desired = this.#checks.get(check);
    if (desired === undefined) return;
    // Read the newest check on each request, because the server outlives the view that opened it.
    const state = () => {
      const newest = this.#checks.get(check) ?? desired;
      return { ...newest, isProxyHealthy: this.#options.isProxyHealthy(newest.family) };
    };
    try {
      listener.server = await listen(host, port, state);
      listener.failure = "";
    } catch (error) {
      const reason = reasonOf(error);
      if (listener.failure !== reason) {
        const { service, family } = desired;
        this.#options.log.error("cannot open health-check node port: trying again", {
          service,
          family,
          host,
          port,
          reason,
        });
      }
      listener.failure = reason;
    }
  }
}

/** Maximum number of open connections of one client to one server; a load balancer keeps one or two. */
const maxPerClient = 8;

/**
 * Listens on `port` at an address of this machine, and answers any path and method with `state()`.
 *
 * Rejects with the system's error if the address cannot be bound.
 */
function listen(host: string, port: number, state: () => CheckState): Promise<Server> {
  // Load balancers check every few seconds from many addresses; the connections that they leave open must not pile up.
  const server = createServer({ ...silenceLimits, keepAliveTimeout: 15_000 }, (request, response) => {
    const { status, headers, body } = answerCheck(state());
    request.resume();
    response.writeHead(status, { ...headers, "Content-Length": Buffer.byteLength(body) }).end(body);
  });
  closeOldest(server, maxPerClient, ({ remoteAddress = "" }) => remoteAddress);
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    // Restrict the socket to IPv6: on Linux, "::" would also bind IPv4, and the IPv4 server on the same port would
    // fail.
    server.listen({ host, port, ipv6Only: host.includes(":") }, () => {
      server.off("error", reject);
      // If a connection cannot be accepted (no file descriptor is left), only its client is affected; the server
      // continues.
      server.on("error", () => undefined);
      resolve(server);
    });
  });
}

/** State of a Service on this node, as reported by a health check. */
interface CheckState {
  readonly namespace: string;
  readonly name: string;
  /** Number of ready endpoints on this node. */
  readonly localEndpoints: number;
  /** False while the rules of this node are out of date. */
  readonly isProxyHealthy: boolean;
}

/** HTTP response to a health check. */
interface CheckAnswer {
  readonly status: 200 | 503;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/**
 * Returns the response to a load balancer's health check of a Service on this node, byte for byte as kube-proxy sends
 * it: 200 if the node has ready endpoints and the proxy is healthy, otherwise 503.
 *
 * *Source:* kube-proxy `healthcheck/service_health.go`, ServeHTTP. Pure.
 */
function answerCheck({ namespace, name, localEndpoints, isProxyHealthy }: CheckState): CheckAnswer {
  const body = { service: { namespace, name }, localEndpoints, serviceProxyHealthy: isProxyHealthy };
  return {
    status: localEndpoints !== 0 && isProxyHealthy ? 200 : 503,
    headers: {
      "Content-Type": "application/json",
      "X-Content-Type-Options": "nosniff",
      "X-Load-Balancing-Endpoint-Weight": String(localEndpoints),
    },
    body: JSON.stringify(body, undefined, "\t"),
  };
}

/** Health check that this node must answer, for one Service and one IP family. */
interface DesiredCheck extends HealthCheckPlan {
  readonly service: ServiceKey;
  readonly namespace: string;
  readonly name: string;
  readonly family: Family;
}

/**
 * Returns the health checks that one Service requires, at most one per family; none for a Service that does not exist.
 * Pure; O(endpoints) for a Service with a health-check node port.
 */
export function desiredChecks(view: NodeView, key: ServiceKey): readonly DesiredCheck[] {
  const serviceView = view.services.get(key);
  if (serviceView === undefined) return [];
  const { service, endpoints } = serviceView;
  return families.flatMap((family) => {
    const check = planHealthCheck(service, endpoints, family);
    if (check === undefined) return [];
    return { service: key, namespace: service.namespace, name: service.name, family, ...check };
  });
}

/** Addresses at which health checks are answered, per IP family. */
export type ListenAddresses = Readonly<Record<Family, NodePortAddresses>>;

/**
 * Returns the current addresses of this machine that the rule for node ports selects (`--nodeport-addresses`).
 * Health-check node ports follow it, too. Loopback and link-local addresses are included; see `selectsAddress`.
 *
 * `local` holds the node's own addresses; default: the addresses of all interfaces.
 */
export function listenAddresses(
  rule: NodePortAddressRule,
  { node }: Pick<NodeView, "node">,
  local: AddressSet = readLocalAddresses(),
): ListenAddresses {
  const addresses = { local, ofNode: node?.addresses };
  const ofFamily = (family: Family) => resolveNodePortAddresses(rule, family, addresses);
  return { v4: ofFamily("v4"), v6: ofFamily("v6") };
}
