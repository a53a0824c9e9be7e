import type { Health } from "@kpng/process/health.ts";
import type { Log } from "@kpng/process/log.ts";
import { withoutCredentials } from "@kpng/process/redact.ts";
import type { Registry } from "prom-client";
import type { DecodeOptions } from "../decode/decode-options.ts";
import type { ClusterSink, Source } from "../source.ts";
import type { KubeConnection } from "./client/connection.ts";
import type { BrakeOptions } from "./objects/brake.ts";
import { ChangeQueue } from "./objects/change-queue.ts";
import { HeldObjects } from "./objects/object-cache.ts";
import { nodeKind, type ObjectKind, serviceCIDRs, serviceKind, sliceKind } from "./objects/object-kinds.ts";
import { HeldServiceCIDRs } from "./objects/service-cidr-cache.ts";
import type { KindHandler } from "./reflector/collection-handler.ts";
import { Reflector, type ReflectorTiming } from "./reflector/reflector.ts";
import { type KindObserver, makeSourceMetrics, observeKind } from "./reflector/reflector-observer.ts";
import type { Resource } from "./request/resource.ts";

export interface KubeSourceOptions {
  readonly connection: KubeConnection;
  readonly sink: ClusterSink;
  readonly decode: DecodeOptions;
  readonly metrics: Registry;
  readonly health: Health;
  readonly log: Log;
  readonly timing?: ReflectorTiming | undefined;
  readonly brake?: BrakeOptions | undefined;
}

/**
 * Watches Services, EndpointSlices and Nodes of an API server, and ServiceCIDRs where it has them.
 *
 * Each kind is given to the sink once it has been listed completely, then change by change; a list that becomes
 * necessary later replaces the kind as one. Nothing is selected here: several proxies are served from one state, each
 * with the Services that are its own, and headless Services to those that ask for them.
 *
 * *Cost:* four watches, however many nodes are served.
 */
export function kubeSource(options: KubeSourceOptions): Source {
  const { connection, sink, decode, brake, log } = options;
  const metrics = makeSourceMetrics(options.metrics);
  const queue = new ChangeQueue(sink);

  const observe = (kind: Resource["kind"], isOptional: boolean): KindObserver =>
    observeKind({ kind, metrics, health: options.health, log, isOptional });
  const reflect = (resource: Resource, handler: KindHandler, observer: KindObserver, isOptional: boolean): Reflector =>
    new Reflector({ ...options.timing, resource, connection, handler, observer, isOptional });
  const reflectObjects = <T>(kind: ObjectKind<T>): Reflector => {
    const observer = observe(kind.kind, false);
    return reflect(kind, new HeldObjects(kind, queue, observer, brake), observer, false);
  };
  const reflectors = [
    reflectObjects(serviceKind(decode)),
    reflectObjects(sliceKind(decode)),
    reflectObjects(nodeKind(decode)),
    reflect(serviceCIDRs, new HeldServiceCIDRs(queue), observe("servicecidrs", true), true),
  ];

  return {
    name: "source/kube",
    async run(signal) {
      log.info("watching the cluster", { server: withoutCredentials(connection.server) });
      const failed = new AbortController();
      const either = AbortSignal.any([signal, failed.signal]);
      try {
        await Promise.all(reflectors.map((reflector) => reflector.run(either)));
      } finally {
        failed.abort();
        connection.close();
      }
    },
  };
}
