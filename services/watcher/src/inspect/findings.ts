import { isDeepStrictEqual } from "node:util";
import { create } from "@bufbuild/protobuf";
import { compareText, getOrMake } from "@kpng/model/collections.ts";
import type { EndpointSlice } from "@kpng/model/endpoint.ts";
import { type Finding, FindingSchema, FindingSeverity } from "@kpng/model/gen/kpng/inspect/v1/finding_pb.ts";
import type { ListFindingsRequest } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { ApplyState } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { type Protocol, type Service, type ServiceKey, serviceKey } from "@kpng/model/service.ts";
import type { Health } from "@kpng/process/health/health.ts";
import { wallClockMs } from "@kpng/process/wall-clock.ts";
import { type Claimant, compareClaimants, frontendId } from "@kpng/service-plan/frontend-claims.ts";
import { Gauge, type Registry } from "prom-client";
import { changedServices } from "../store/derived.ts";
import { emptySnapshot, type Snapshot, slicesOf } from "../store/snapshot.ts";
import type { Store } from "../store/store.ts";
import type { Subscribers } from "../stream/session/subscribers.ts";
import { countEndpoints, listAddresses } from "./cluster-rows.ts";
import { nodeProgress } from "./progress-rows.ts";

interface FindingsContext {
  readonly subscribers: Pick<Subscribers, "open" | "store">;
  /** Health of the process, whose parts report the failures of the source, the listeners and the credentials. */
  readonly health: Pick<Health, "parts">;
  /** False in `kpng SOURCE analyze`, because no node can follow the watcher of that command. */
  readonly hasNodes: boolean;
}

/**
 * Lists what is probably wrong with the cluster, with this watcher and with the nodes that follow it, and what to do
 * about it. `kpng status`, `kpng analyze`, the status page and the metric `kpng_watcher_findings` all show this list.
 *
 * A finding is an error if traffic is lost or nodes are not kept up to date, and a warning if the state may be
 * intended. Rules that other programs changed are not reported as a finding, because only the backend knows about them
 * (`kpng get backend`).
 *
 * *Cost:* each call examines the Services that changed since the last call, all addresses of Services if a Service has
 * changed, Services with whole addresses, and all nodes. The first call reads every endpoint.
 */
export class Findings {
  readonly #context: FindingsContext;
  #snapshot: Snapshot = emptySnapshot;
  #zones: readonly string[] = [];
  /** Findings about each Service and its endpoints; contains only Services with findings. */
  readonly #byService = new Map<ServiceKey, readonly Finding[]>();
  #claims: readonly Finding[] = [];

  constructor(context: FindingsContext) {
    this.#context = context;
  }

  /** Returns the findings: errors first, then by subject. */
  list(nowMs: number): readonly Finding[] {
    const { subscribers, health, hasNodes } = this.#context;
    const { store } = subscribers;
    const { snapshot } = store;
    const findings: (readonly Finding[])[] = [[...watcherFindings(store, health)]];
    if (snapshot.isSynced) {
      this.#advance(snapshot);
      for (const ofService of this.#byService.values()) findings.push(ofService);
      findings.push(this.#claims, [...podCidrFindings(snapshot)]);
      findings.push([...wholeAddressFindings(snapshot, subscribers)]);
      if (hasNodes) findings.push([...nodeFindings(snapshot, subscribers, nowMs)]);
    }
    return findings.flat().sort((a, b) => b.severity - a.severity || compareText(a.subject, b.subject));
  }

  /** Updates the findings about Services from the snapshot of the last call to `snapshot`. */
  #advance(snapshot: Snapshot): void {
    const before = this.#snapshot;
    this.#snapshot = snapshot;
    const zones = [...new Set(Array.from(snapshot.nodes.values(), ({ zone }) => zone))].filter((zone) => zone !== "");
    const areZonesSame = isDeepStrictEqual(zones.sort(), this.#zones);
    this.#zones = zones;
    // Findings about zone hints depend on all zones, so with other zones every Service is examined again.
    if (!areZonesSame) this.#byService.clear();
    for (const key of changedServices(areZonesSame ? before : emptySnapshot, snapshot) as readonly ServiceKey[]) {
      const findings = [...serviceFindings(key, snapshot.services.get(key), slicesOf(snapshot, key), zones)];
      if (findings.length === 0) this.#byService.delete(key);
      else this.#byService.set(key, findings);
    }
    if (snapshot.services !== before.services) this.#claims = [...claimFindings([...snapshot.services.values()])];
  }
}

/** Registers the findings metric, which is computed at each scrape. */
export function countFindings(registry: Registry, findings: Findings): void {
  new Gauge({
    name: "kpng_watcher_findings",
    help: "What is probably wrong with the cluster, this watcher and its nodes, by severity; kpng analyze lists it",
    labelNames: ["severity"],
    registers: [registry],
    collect() {
      const { errorCount, warningCount } = selectFindings(findings.list(wallClockMs()), { namespace: "", object: "" });
      this.set({ severity: "error" }, errorCount);
      this.set({ severity: "warning" }, warningCount);
    },
  });
}

/** Maximum number of findings in an answer; the counts include the others. */
const maxFindings = 1_000;

/** Selects the findings that a request asks for, and counts them. */
export function selectFindings(
  findings: readonly Finding[],
  { namespace, object }: Pick<ListFindingsRequest, "namespace" | "object">,
) {
  const prefix = namespace === "" ? "" : `service/${namespace}/`;
  // A text names other objects as `kind/…`; the word "watcher" in a text does not mean this watcher.
  const names = (text: string): boolean => object.includes("/") && text.split(/[ ,]+/).includes(object);
  const isAbout = ({ subject, text }: Finding): boolean => object === "" || subject === object || names(text);
  const selected = findings.filter((one) => one.subject.startsWith(prefix) && isAbout(one));
  const errorCount = selected.filter(({ severity }) => severity === FindingSeverity.ERROR).length;
  return { findings: selected.slice(0, maxFindings), errorCount, warningCount: selected.length - errorCount };
}

function error(code: string, subject: string, text: string, remedy: string): Finding {
  return create(FindingSchema, { severity: FindingSeverity.ERROR, code, subject, text, remedy });
}

function warning(code: string, subject: string, text: string, remedy: string): Finding {
  return create(FindingSchema, { severity: FindingSeverity.WARNING, code, subject, text, remedy });
}

function* watcherFindings({ snapshot }: Store, { parts }: FindingsContext["health"]): Generator<Finding> {
  for (const [part, { isHealthy, isReady, reason }] of parts) {
    const text = `${part}: ${reason}`;
    if (!isHealthy || !isReady) yield error("part-failing", "watcher", text, remedyFor(part));
    else if (reason !== "") yield warning("part-warning", "watcher", text, remedyFor(part));
  }
  if (snapshot.isSynced && snapshot.services.size === 0) {
    const remedy = "is the source the right one, and does --service-proxy-name select too little?";
    yield warning("no-services", "watcher", "it holds no Service", remedy);
  }
}

function remedyFor(part: string): string {
  if (part.startsWith("source/")) return "until this is repaired, nodes keep the last state that was read completely";
  if (part.startsWith("objects/")) return "correct them; until then, nodes have their valid parts or last valid values";
  if (part === "certificate") return "issue a new one with the same CA: the watcher loads it without a restart";
  return "see the log of the watcher";
}

function* serviceFindings(
  key: ServiceKey,
  service: Service | undefined,
  slices: readonly EndpointSlice[],
  zones: readonly string[],
): Generator<Finding> {
  const subject = `service/${key}`;
  const endpoints = slices.flatMap((slice) => slice.endpoints);
  if (service === undefined) {
    if (endpoints.length === 0) return;
    const text = "EndpointSlices name it, but it does not exist";
    yield warning("slices-without-service", subject, text, "delete the slices, or create the Service");
    return;
  }
  const { ready, terminating, notReady } = countEndpoints(slices);
  if (ready === 0 && (!service.isHeadless || service.mapIP) && service.type !== "ExternalName") {
    if (terminating > 0) {
      const text = `no endpoint is ready; ${terminating} that terminate still receive its traffic`;
      yield warning("only-terminating", subject, text, "look at the readiness of its new pods");
    } else if (notReady > 0) {
      const text = `none of its ${notReady} endpoints is ready: connections are refused`;
      yield error("none-ready", subject, text, `look at its pods: kpng get endpoints --service ${key}`);
    } else {
      const text = "it has no endpoints: connections are refused";
      const remedy = service.isHeadless
        ? "a headless Service needs kpng.dev/map-ip as a label: an annotation is not copied to its EndpointSlices"
        : "compare its selector with the labels of its pods";
      yield warning("no-endpoints", subject, text, remedy);
    }
  }
  const readyEndpoints = endpoints.filter(({ conditions }) => conditions.ready);
  const hinted = readyEndpoints.filter(({ hintedZones }) => hintedZones.length > 0);
  if (hinted.length === 0) return;
  if (hinted.length < readyEndpoints.length) {
    const count = readyEndpoints.length - hinted.length;
    const text = `${count} of ${readyEndpoints.length} ready endpoints have no zone hint, so no hint is used`;
    yield warning("hints-incomplete", subject, text, "wait for the EndpointSlice controller, or look at its log");
    return;
  }
  const covered = new Set(hinted.flatMap(({ hintedZones }) => hintedZones));
  const uncovered = zones.filter((zone) => !covered.has(zone));
  if (uncovered.length === 0) return;
  const text = `its hints name no endpoint for zone ${uncovered.join(", ")}, whose nodes use all endpoints`;
  yield warning("hints-without-zone", subject, text, "run endpoints in each zone, or drop trafficDistribution");
}

/**
 * Finds addresses and node ports that several Services claim. The subject is the Service that gets no packets there
 * ({@link compareClaimants}), or that claims the cluster IP of another Service, even on a different port.
 */
function* claimFindings(services: readonly Service[]): Generator<Finding> {
  const clusterIPs = new Map<string, Service>();
  for (const service of services) {
    if (!service.isHeadless) for (const address of listAddresses(service.clusterIPs)) clusterIPs.set(address, service);
  }
  for (const service of services) {
    const others = [...listAddresses(service.externalIPs), ...listAddresses(service.loadBalancerIPs)];
    for (const address of new Set(others)) {
      const owner = clusterIPs.get(address);
      if (owner === undefined || owner === service) continue;
      const text = `it claims ${address}, the cluster IP of service/${serviceKey(owner)}, which keeps its ports`;
      const remedy =
        "remove the address; the admission plugin DenyServiceExternalIPs forbids external IPs (CVE-2020-8554)";
      yield error("cluster-ip-claimed", `service/${serviceKey(service)}`, text, remedy);
    }
  }
  for (const [frontend, claimants] of claimedFrontends(services)) {
    if (claimants.length === 1) continue;
    const [owner, ...others] = claimants.sort(compareClaimants);
    for (const other of others) {
      // This clash was reported above, once for all ports.
      if (owner?.kind === "clusterIP" && other.kind !== "clusterIP") continue;
      const text = `it gets no packets at ${frontend}, which service/${owner?.key} has`;
      yield error("frontend-claimed", `service/${other.key}`, text, "give each Service an address of its own");
    }
  }
}

/**
 * Returns the claims to each node port, to each combination of address and port, and to each whole address. *Shape of a
 * key:* `10.96.0.1:443/TCP`.
 */
function claimedFrontends(services: readonly Service[]): ReadonlyMap<string, Claimant[]> {
  const claims = new Map<string, Claimant[]>();
  for (const service of services) {
    const { createdSeconds, uid, isHeadless, clusterIPs, loadBalancerIPs, externalIPs, ports } = service;
    const key = serviceKey(service);
    const claim = (kind: Claimant["kind"], place: Parameters<typeof frontendId>[0]): void => {
      const claimants = getOrMake(claims, frontendId(place), () => []);
      // If one Service makes several claims, only the first one counts.
      if (claimants.at(-1)?.key !== key) claimants.push({ key, kind, createdSeconds, uid });
    };
    const claimAddresses = (place: { readonly protocol?: Protocol; readonly port?: number }): void => {
      if (!isHeadless) for (const address of listAddresses(clusterIPs)) claim("clusterIP", { ...place, address });
      for (const address of listAddresses(loadBalancerIPs)) claim("loadBalancerIP", { ...place, address });
      for (const address of listAddresses(externalIPs)) claim("externalIP", { ...place, address });
    };
    for (const { port, nodePort, protocol } of ports) {
      claimAddresses({ protocol, port });
      if (nodePort !== 0) claim("nodePort", { protocol, port: nodePort });
    }
    if (service.mapIP) claimAddresses({});
  }
  return claims;
}

/** Backends that serve only the ports of a Service that asks for whole addresses. */
const withoutWholeAddresses: ReadonlySet<string> = new Set(["kpng-ipvs", "kpng-userspace"]);

/** Finds whole addresses (`Service.mapIP`) that nodes do not serve, or that take the traffic of nodes. */
function* wholeAddressFindings(
  { services, nodes }: Snapshot,
  { open }: FindingsContext["subscribers"],
): Generator<Finding> {
  const asking = [...services.values()].filter(({ mapIP }) => mapIP);
  if (asking.length === 0) return;
  const nodeOfAddress = new Map(
    [...nodes.values()].flatMap(({ name, addresses }) => addresses.map((each) => [each, name])),
  );
  for (const service of asking) {
    const subject = `service/${serviceKey(service)}`;
    const without = [...open].filter(
      ({ isNode, program, proxyName }) =>
        isNode && proxyName === service.proxyName && withoutWholeAddresses.has(program),
    );
    const [first] = without;
    if (first !== undefined) {
      const nodes = [...new Set(without.map(({ nodeName }) => nodeName))].sort();
      const more = nodes.length > 3 ? ` and ${nodes.length - 3} more` : "";
      const text = `it asks for whole addresses, and ${first.program} serves only its ports on ${nodes.slice(0, 3).join(", ")}${more}`;
      yield error("whole-address-unserved", subject, text, "run kpng-nft, kpng-iptables or kpng-ebpf on these nodes");
    }
    for (const address of [...listAddresses(service.externalIPs), ...listAddresses(service.loadBalancerIPs)]) {
      const node = nodeOfAddress.get(address);
      if (node === undefined) continue;
      const text = `it asks for the whole address ${address} of node/${node}: other nodes no longer reach that node there`;
      yield error("whole-address-of-node", subject, text, "remove the address, or the annotation kpng.dev/map-ip");
    }
  }
}

function* podCidrFindings({ nodes }: Snapshot): Generator<Finding> {
  if (nodes.size === 0) return;
  for (const { podCIDRs } of nodes.values()) if (podCIDRs.length > 0) return;
  const text = "no Node has pod CIDRs, so the watcher cannot tell the traffic of pods from that of others";
  yield warning("no-pod-cidrs", "watcher", text, "give the backends --cluster-cidr, or another --detect-local-mode");
}

/** Maximum time that a node may take to apply a change before this becomes a finding, in milliseconds. */
const slowMs = 10_000;

function* nodeFindings(
  snapshot: Snapshot,
  { open }: FindingsContext["subscribers"],
  nowMs: number,
): Generator<Finding> {
  for (const [name, { state, error: reason, unappliedSinceMs }] of nodeProgress(snapshot, open)) {
    const subject = `node/${name}`;
    if (state === ApplyState.FAILING) {
      const text = `its last attempt to apply a change failed: ${reason}`;
      yield error("node-failing", subject, text, "run kpng get backend on the node, and read its log");
    } else if (state === ApplyState.ABSENT) {
      const remedy = "is the backend's pod running there, and does it reach this watcher? Another replica may serve it";
      yield warning("node-absent", subject, "no backend of this node follows this watcher", remedy);
    } else if (state === ApplyState.UNKNOWN) {
      const text = "a backend follows it, but the cluster has no such Node";
      yield error("node-unknown", subject, text, "compare --node-name of its backend with kubectl get nodes");
    } else if (unappliedSinceMs !== undefined && nowMs - unappliedSinceMs > slowMs) {
      const text = `a change has waited for ${Math.floor((nowMs - unappliedSinceMs) / 1_000)} s to be applied`;
      yield error("node-slow", subject, text, "run kpng get backend on the node: is it overloaded or stuck?");
    }
  }
}
