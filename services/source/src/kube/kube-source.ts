import { isIP } from "node:net";
import { isRecord } from "@kpng/model/narrowing.ts";
import type { Health } from "@kpng/process/health/health.ts";
import { type Log, withoutCredentials } from "@kpng/process/log.ts";
import { waitMs } from "@kpng/process/wait.ts";
import { wallClockMs } from "@kpng/process/wall-clock.ts";
import type { Registry } from "prom-client";
import type { DecodeOptions } from "../decode/decoded.ts";
import { type ProbeAnswer, probeServer } from "../probe-server.ts";
import type { ClusterSink, Kind, Source } from "../source.ts";
import { describeFailure, type KubeConnection, type RequestFailure, readJson } from "./connection.ts";
import { KindReport, makeSourceMetrics } from "./kind-report.ts";
import { nodeKind, type ObjectKind, ObjectTracker, serviceKind, sliceKind } from "./objects.ts";
import { isOlder, Reflector, type ReflectorTiming } from "./reflector.ts";
import { currentResourceVersion, listObjects } from "./requests.ts";

export interface KubeSourceOptions {
  readonly connection: KubeConnection;
  readonly sink: ClusterSink;
  readonly decode: DecodeOptions;
  readonly metrics: Registry;
  readonly health: Health;
  readonly log: Log;
  readonly timing?: ReflectorTiming | undefined;
  /** Time without an answer from the API server after which the source is stale, in milliseconds. Default 15 000. */
  readonly staleAfterMs?: number | undefined;
}

/**
 * Fills the sink from an API server with all Services, EndpointSlices, Nodes, and ServiceCIDRs if the server has them.
 * *Cost:* three watches, two small read requests every five seconds and one every minute.
 */
export function kubeSource(options: KubeSourceOptions): Source {
  const { connection, sink, decode, log, staleAfterMs } = options;
  const reports = { ...options, metrics: makeSourceMetrics(options.metrics) };
  const cluster = new Cluster(connection);
  const reflect = <K extends Kind>(resource: ObjectKind<K>): Reflector => {
    const report = new KindReport(resource.kind, reports);
    const tracker = new ObjectTracker(resource, sink, report, () => cluster.id);
    return new Reflector({ ...options.timing, resource, connection, tracker, report });
  };
  const services = reflect(serviceKind(decode));
  const reflectors = [services, reflect(sliceKind), reflect(nodeKind(decode))];

  return {
    name: "source/kube",
    async run(signal) {
      log.info("watching the API server", { server: withoutCredentials(connection.server) });
      const failed = new AbortController();
      const either = AbortSignal.any([signal, failed.signal]);
      try {
        // This precedes the first list, so that every state of this cluster carries its identity.
        const failure = await cluster.identify(identifyMs, either);
        if (failure !== undefined)
          log.info("UID of the namespace kube-system unknown: states are taken for those of any cluster", {
            reason: describeFailure(failure),
          });
        const running = reflectors.map((reflector) => reflector.run(either));
        running.push(followCIDRs({ connection, sink, cluster }, either));
        const { currency } = sink;
        const probe = makeServerProbe(connection, cluster, services, reflectors);
        running.push(probeServer({ ...probe, currency, staleAfterMs }, either));
        await Promise.all(running);
      } finally {
        failed.abort();
        connection.close();
      }
    },
  };
}

/** Maximum time for which the first lists wait for the identity of the cluster, in milliseconds. */
const identifyMs = 5_000;

/**
 * The identity of a cluster: the UID of its namespace kube-system. A restored etcd keeps the UID; a rebuilt cluster, or
 * an API server with an empty etcd, has a different one.
 */
class Cluster {
  readonly #connection: KubeConnection;
  /** Undefined until it is known. */
  id: string | undefined;

  constructor(connection: KubeConnection) {
    this.#connection = connection;
  }

  /** Reads the identity. If it cannot be read, `id` stays unchanged. */
  async identify(silenceMs: number, signal: AbortSignal): Promise<RequestFailure | undefined> {
    const request = { verb: "get", resource: "namespaces" } as const;
    const path = "/api/v1/namespaces/kube-system";
    const result = await readJson(this.#connection, { request, path, silenceMs }, signal);
    if (result.kind !== "object") return result;
    const uid = isRecord(result.object.metadata) ? result.object.metadata.uid : undefined;
    if (typeof uid !== "string" || !/^[\w-]{1,64}$/.test(uid)) {
      return { ...request, kind: "garbled", message: "the namespace has no UID" };
    }
    this.id = uid;
    return undefined;
  }
}

/**
 * Returns the callbacks of `probeServer`, which determine whether the state equals the API server's. The probe asks for
 * the version of `services`. Everything is listed again when the server answers after a silence, when its versions have
 * gone back, or when it serves another cluster. The state is behind until these lists are complete and no deletions wait
 * for confirmation.
 *
 * After a silence, watches must not continue, because etcd may have been restored and may since have counted beyond
 * their versions.
 */
function makeServerProbe(
  connection: KubeConnection,
  cluster: Cluster,
  services: Reflector,
  reflectors: readonly Reflector[],
) {
  let wasSilent = false;
  const ask = async (limitMs: number, signal: AbortSignal): Promise<ProbeAnswer> => {
    // This is read before the request, because events can overtake the answer.
    const knownVersion = services.resourceVersion ?? "";
    const end = await currentResourceVersion(connection, serviceCollection, limitMs, signal);
    // Without its first lists, the watcher serves nobody, and readiness already reports them.
    if (reflectors.some(({ isListed }) => !isListed)) return { kind: "current" };
    if (end.kind !== "listed") return { kind: "silent", reason: describeFailure(end) };
    const { id } = cluster;
    // If the server freezes between these two requests, this probe takes longer, and the next one notices.
    await cluster.identify(limitMs, signal);
    // Old objects carry the new identity until they are listed again; until then, the answer below is "behind".
    const isOther = id !== undefined && cluster.id !== id;
    if (isOlder(end.resourceVersion, knownVersion) || isOther || wasSilent) {
      for (const reflector of reflectors) reflector.requestList(wasSilent ? "stale" : "went-back");
      wasSilent = false;
    }
    const failure = reflectors.map((reflector) => reflector.failure).find((one) => one !== undefined);
    const reason = failure === undefined ? "" : describeFailure(failure);
    if (!reflectors.every(({ isCurrent }) => isCurrent)) {
      return { kind: "behind", reason: `the API server is being listed again${reason === "" ? "" : `: ${reason}`}` };
    }
    // Not "silent": then all kinds would be listed again, every few seconds, at a server that already refuses some.
    return failure === undefined ? { kind: "current" } : { kind: "failing", reason };
  };
  const onSilent = (): void => {
    wasSilent = true;
  };
  return { ask, onSilent };
}

const serviceCollection = { path: "/api/v1/services", resource: "services" };

/**
 * Reads the ranges of cluster IPs every minute, and passes them to the sink as one sorted list. Without these ranges,
 * rules cannot drop packets to unused cluster IPs. If the server lacks the kind (before 1.33) or denies access, it is
 * asked again only every ten minutes.
 *
 * Source: networking.k8s.io/v1 ServiceCIDR.spec.cidrs.
 */
async function followCIDRs(
  { connection, sink, cluster }: Pick<KubeSourceOptions, "connection" | "sink"> & { readonly cluster: Cluster },
  signal: AbortSignal,
): Promise<void> {
  const resource = {
    path: "/apis/networking.k8s.io/v1/servicecidrs",
    resource: "servicecidrs.networking.k8s.io",
  };
  while (!signal.aborted) {
    const cidrs = new Set<string>();
    const add = (object: unknown): void => {
      for (const cidr of cidrsOf(object)) cidrs.add(cidr);
    };
    const end = await listObjects(connection, resource, {}, add, signal);
    if (signal.aborted) return;
    if (end.kind === "listed") {
      const origin = { source: "kube", receivedAtMs: wallClockMs(), clusterId: cluster.id };
      sink.replace({ serviceCIDRs: [...cidrs].sort() }, origin);
    }
    const isAbsent = end.kind === "refused" && (end.status === 404 || end.status === 403);
    await waitMs(end.kind === "listed" ? 60_000 : isAbsent ? 600_000 : 5_000, signal);
  }
}

function cidrsOf(object: unknown): readonly string[] {
  const spec = isRecord(object) && isRecord(object.spec) ? object.spec : {};
  const cidrs: readonly unknown[] = Array.isArray(spec.cidrs) ? spec.cidrs : [];
  return cidrs.filter((cidr) => typeof cidr === "string").filter((cidr) => isIP(cidr.split("/")[0] ?? "") !== 0);
}
