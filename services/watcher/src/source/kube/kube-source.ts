import type { Health } from "@kpng/process/health/health.ts";
import type { Log } from "@kpng/process/log.ts";
import { withoutCredentials } from "@kpng/process/log.ts";
import type { Registry } from "prom-client";
import type { DecodeOptions } from "../decode/decoded.ts";
import type { ClusterSink, Source } from "../source.ts";
import { ChangeQueue } from "./change-queue.ts";
import { describeFailure, type KubeConnection, type RequestFailure, type Resource } from "./connection.ts";
import { followServer, identify } from "./follow-server.ts";
import { ObjectCache, ServiceCIDRCache } from "./object-cache.ts";
import { nodeKind, type ObjectKind, serviceCIDRResource, serviceKind, sliceKind } from "./object-kinds.ts";
import { makeSourceMetrics, observeReflector } from "./observe-reflector.ts";
import { type CollectionHandler, Reflector, type ReflectorObserver, type ReflectorTiming } from "./reflector.ts";

/** Options of {@link kubeSource}. */
export interface KubeSourceOptions {
  readonly connection: KubeConnection;
  readonly sink: ClusterSink;
  readonly decode: DecodeOptions;
  readonly metrics: Registry;
  readonly health: Health;
  readonly log: Log;
  readonly timing?: ReflectorTiming | undefined;
  /** Proxy names to select in the API server, as far as its selectors can. Default: all Services. */
  readonly proxyNames?: readonly string[] | undefined;
  /** Time without an answer of the API server after which the source is stale, in milliseconds. Default 15 000. */
  readonly staleAfterMs?: number | undefined;
}

/**
 * Fills the sink from an API server: Services, EndpointSlices, Nodes, and ServiceCIDRs if the server has them.
 *
 * The sink gets each kind once its first list is complete, and then change by change. A later list replaces the kind in
 * one step. Without `proxyNames` nothing is filtered, because several proxies with different selections are served from
 * one state.
 *
 * *Cost:* four watches, and a read of one namespace every five seconds, regardless of the number of nodes.
 */
export function kubeSource(options: KubeSourceOptions): Source {
  const { connection, sink, decode, log, proxyNames } = options;
  const metrics = makeSourceMetrics(options.metrics);
  const queue = new ChangeQueue(sink);

  const observe = (kind: Resource["kind"], isOptional: boolean): ReflectorObserver =>
    observeReflector({ kind, metrics, health: options.health, log, isOptional });
  const reflect = (
    resource: Resource,
    handler: CollectionHandler,
    observer: ReflectorObserver,
    isOptional: boolean,
  ): Reflector => new Reflector({ ...options.timing, resource, connection, handler, observer, isOptional });
  const reflectObjects = <T>(kind: ObjectKind<T>): Reflector => {
    const observer = observe(kind.kind, false);
    return reflect(kind, new ObjectCache(kind, queue, observer), observer, false);
  };
  const services = serviceKind(decode, proxyNames);
  const reflectors = {
    services: reflectObjects(services),
    slices: reflectObjects(sliceKind(proxyNames)),
    nodes: reflectObjects(nodeKind(decode)),
  };
  const cidrs = reflect(serviceCIDRResource, new ServiceCIDRCache(queue), observe("servicecidrs", true), true);
  const { staleAfterMs } = options;

  return {
    name: "source/kube",
    async run(signal) {
      log.info("watching the cluster", { server: withoutCredentials(connection.server) });
      const failed = new AbortController();
      const either = AbortSignal.any([signal, failed.signal]);
      try {
        // Before the first list, so that no state of this cluster is without its identity.
        const onFailure = (failure: RequestFailure): void =>
          log.info("the cluster is not identified", { reason: describeFailure(failure) });
        await identify({ connection, queue, onFailure }, identifyMs, either);
        const running = [...Object.values(reflectors), cidrs].map((reflector) => reflector.run(either));
        const { currency } = sink;
        if (currency !== undefined) {
          const follow = { connection, currency, queue, services, staleAfterMs };
          running.push(followServer({ ...follow, reflectors: Object.values(reflectors) }, either));
        }
        await Promise.all(running);
      } finally {
        failed.abort();
        connection.close();
      }
    },
  };
}

/** How long the first lists wait for the identity of the cluster, in milliseconds. It is read again every 5 s. */
const identifyMs = 5_000;
