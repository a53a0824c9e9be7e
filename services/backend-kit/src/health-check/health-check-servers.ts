import { once } from "node:events";
import { createServer, type Server, type ServerResponse } from "node:http";
import { type AddressSet, type Family, families, isLinkLocal } from "@kpng/model/address.ts";
import { getOrMake } from "@kpng/model/collections.ts";
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

interface HealthCheckServersOptions {
  readonly log: Log;
  readonly metrics: Registry;
  /** Called at each request. */
  readonly isProxyHealthy: (family: Family) => boolean;
  /**
   * Called after each attempt, with the reasons why addresses cannot be bound; the list is empty if all are bound.
   * *Shape:* `192.0.2.1 port 31000: …`.
   */
  readonly onFailures?: ((reasons: readonly string[]) => void) | undefined;
  readonly wait?: typeof waitMs | undefined;
}

interface CheckUpdate {
  readonly view: NodeView;
  /** Called again before each attempt to open ports, because a node may get new addresses while it runs. */
  readonly addresses: () => ListenAddresses;
  /** Families whose rules are installed; the checks of the other family do not change. Default: both. */
  readonly families?: readonly Family[] | undefined;
  /** Services that may have changed since the last call. Default: all. */
  readonly changed?: ReadonlySet<ServiceKey> | "all" | undefined;
}

/**
 * Time between two attempts to open ports that another program occupied, or ports at new addresses of the node, in
 * milliseconds. It is short because neither proxy answers while a node moves from one service proxy to another, and a
 * load balancer removes a node after a few failed checks.
 */
const retryMs = 1_000;

const keyOf = ({ service, family }: Pick<DesiredCheck, "service" | "family">): string => `${service} ${family}`;

interface Listener {
  /** Updated by each sync, because the server outlives the view that opened it. */
  check: DesiredCheck;
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
 * address that cannot be bound is logged once and tried again every second; meanwhile, the other addresses answer.
 *
 * *Bound:* 8 connections per client, address and port; each new one beyond that replaces the client's oldest. Idle ones
 * end after 15 s. There is no bound for all clients together, with which one of them could keep out load balancers.
 */
export class HealthCheckServers {
  readonly #options: HealthCheckServersOptions;
  readonly #missing: Gauge;
  readonly #checks = new Map<string, DesiredCheck>();
  readonly #listeners = new Map<string, Listener>();
  #addresses: (() => ListenAddresses) | undefined;
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
      let isChanged = changed === "all";
      const known = () => [...this.#checks.values()].map(({ service }) => service);
      for (const service of changed === "all" ? new Set([...known(), ...view.services.keys()]) : changed) {
        const checks = desiredChecks(view, service);
        for (const family of inForce) {
          const check = checks.find((one) => one.family === family);
          const key = keyOf({ service, family });
          if (check === undefined) isChanged = this.#checks.delete(key) || isChanged;
          else {
            this.#checks.set(key, check);
            isChanged = true;
          }
        }
      }
      if (isChanged) await this.#reconcile();
    });
  }

  /** Keeps trying to open missing ports until `signal` aborts, and then closes all servers. */
  async run(signal: AbortSignal): Promise<void> {
    const { wait = waitMs } = this.#options;
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
    for (const [key, listener] of desired) getOrMake(this.#listeners, key, () => listener).check = listener.check;
    for (const listener of this.#listeners.values()) if (listener.server === undefined) await this.#open(listener);
    const missing = [...this.#listeners.values()].filter(({ server }) => server === undefined);
    this.#missing.set(new Set(missing.map(({ check }) => keyOf(check))).size);
    this.#options.onFailures?.(missing.map(({ host, port, failure }) => `${host} port ${port}: ${failure}`));
  }

  #desiredListeners(): ReadonlyMap<string, Listener> {
    const desired = new Map<string, Listener>();
    const addresses = this.#checks.size === 0 ? undefined : this.#addresses?.();
    for (const [key, check] of this.#checks) {
      const { family, port } = check;
      const chosen = addresses?.[family];
      const hosts = chosen?.kind === "listed" ? chosen.addresses : [family === "v4" ? "0.0.0.0" : "::"];
      for (const host of hosts) {
        // As in `planNode`: without a zone, a link-local address cannot be bound.
        if (isLinkLocal(host)) continue;
        desired.set(`${key} ${host} ${port}`, { check, host, port, server: undefined, failure: "" });
      }
    }
    return desired;
  }

  async #open(listener: Listener): Promise<void> {
    const { host, port } = listener;
    const { service, family } = listener.check;
    const answer = (response: ServerResponse): void =>
      answerCheck(response, listener.check, this.#options.isProxyHealthy(family));
    try {
      listener.server = await listen(host, port, answer);
      listener.failure = "";
    } catch (error) {
      const reason = reasonOf(error);
      const fields = { service, family, host, port, reason };
      const isNew = listener.failure !== reason;
      if (isNew) this.#options.log.error("cannot open health-check node port: trying again", fields);
      listener.failure = reason;
    }
  }
}

/** Maximum number of open connections of one client to one server; a load balancer keeps one or two. */
const maxPerClient = 8;

/** Answers any path and method. Rejects with the system's error if the address cannot be bound. */
async function listen(host: string, port: number, answer: (response: ServerResponse) => void): Promise<Server> {
  // Load balancers check every few seconds from many addresses; the connections that they leave open must not pile up.
  const server = createServer({ ...silenceLimits, keepAliveTimeout: 15_000 }, (request, response) => {
    request.resume();
    answer(response);
  });
  closeOldest(server, maxPerClient, ({ remoteAddress = "" }) => remoteAddress);
  // On Linux, "::" would also bind IPv4, and the IPv4 server on the same port would fail.
  server.listen({ host, port, ipv6Only: host.includes(":") });
  await once(server, "listening");
  // A connection that cannot be accepted, because no file descriptor is left, affects only its client.
  server.on("error", () => undefined);
  return server;
}

/**
 * Answers a load balancer's health check of a Service on this node, byte for byte as kube-proxy does: 200 if the node has
 * ready endpoints and its rules are up to date, otherwise 503.
 *
 * *Source:* kube-proxy `healthcheck/service_health.go`, ServeHTTP.
 */
function answerCheck(response: ServerResponse, check: DesiredCheck, serviceProxyHealthy: boolean): void {
  const { namespace, name, localEndpoints } = check;
  const body = JSON.stringify({ service: { namespace, name }, localEndpoints, serviceProxyHealthy }, undefined, "\t");
  const headers = {
    "Content-Type": "application/json",
    "X-Content-Type-Options": "nosniff",
    "X-Load-Balancing-Endpoint-Weight": String(localEndpoints),
    "Content-Length": Buffer.byteLength(body),
  };
  response.writeHead(localEndpoints !== 0 && serviceProxyHealthy ? 200 : 503, headers).end(body);
}

interface DesiredCheck extends HealthCheckPlan {
  readonly service: ServiceKey;
  readonly namespace: string;
  readonly name: string;
  readonly family: Family;
}

/** Returns at most one check per family. Pure; O(endpoints) for a Service with a health-check node port. */
export function desiredChecks(view: NodeView, key: ServiceKey): readonly DesiredCheck[] {
  const serviceView = view.services.get(key);
  if (serviceView === undefined) return [];
  const { service } = serviceView;
  return families.flatMap((family) => {
    const check = planHealthCheck(serviceView, family);
    if (check === undefined) return [];
    return { service: key, namespace: service.namespace, name: service.name, family, ...check };
  });
}

export type ListenAddresses = Readonly<Record<Family, NodePortAddresses>>;

/**
 * Returns the current addresses of this machine that the rule for node ports selects (`--nodeport-addresses`).
 * Health-check node ports follow it, too. Loopback and link-local addresses are included; see `selectsAddress`.
 */
export function listenAddresses(
  rule: NodePortAddressRule,
  { node }: Pick<NodeView, "node">,
  local: AddressSet,
): ListenAddresses {
  const addresses = { local, ofNode: node?.addresses };
  const ofFamily = (family: Family) => resolveNodePortAddresses(rule, family, addresses);
  return { v4: ofFamily("v4"), v6: ofFamily("v6") };
}
