import { getOrMake } from "@kpng/model/collections.ts";
import { type Endpoint, type Node, ProtocolSchema, type Service } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import type { GetStatusResponse } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { ApplyState } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { serviceKey } from "@kpng/model/service.ts";
import { type Claimant, compareClaimants } from "@kpng/service-plan/frontend-claims.ts";
import { InvalidArgumentError } from "commander";
import { type InspectClient, type InspectCommand, inspectClient, readPages } from "./client.ts";
import { namespaceOptions, splitName } from "./list.ts";
import { enumWord, formatAge, formatCount, formatTable, oneLine, terminalText, timestampMs } from "./print/text.ts";
/** Something that is probably wrong, and what to do about it. */
export interface Finding {
  /** "error": traffic is lost, or nodes are not kept up to date. "warning": it may be intended. */
  readonly severity: "error" | "warning";
  /** Its object: `service/default/web`, `node/n1` or `watcher`. */
  readonly subject: string;
  readonly text: string;
  readonly remedy: string;
}

interface FindOptions {
  /** True for a watcher that nodes follow; false for one in this process, which no node knows. */
  readonly hasNodes: boolean;
  /** Default: now. */
  readonly nowMs?: number | undefined;
}

/**
 * Looks for what commonly goes wrong in a cluster and between a watcher and its nodes. Pure. Errors first, then by
 * subject. Only the backend of a node knows about drift of its rules, so drift is not among the findings: `kpng get
 * backend` shows it.
 */
export function findFindings(state: WatcherState, { hasNodes, nowMs = Date.now() }: FindOptions): readonly Finding[] {
  const findings = [
    ...watcherFindings(state),
    ...serviceFindings(state),
    ...addressFindings(state.services),
    ...hintFindings(state),
    ...podCidrFindings(state),
    ...(hasNodes ? nodeFindings(state, nowMs) : []),
  ];
  const rank = (finding: Finding): string => `${finding.severity === "error" ? 0 : 1} ${finding.subject}`;
  return findings.toSorted((one, other) => (rank(one) < rank(other) ? -1 : rank(one) > rank(other) ? 1 : 0));
}

function* watcherFindings({ status }: WatcherState): Generator<Finding> {
  const subject = "watcher";
  if (!status.isSynced) {
    const text = `it has not yet listed ${status.missingKinds.join(", ")}`;
    const remedy = "see its log and /readyz: its API server may not answer, or its account may lack rights";
    yield { severity: "error", subject, text, remedy };
  }
  if (status.isSynced && status.serviceCount === 0) {
    const remedy = "is the source the right one, and does --service-proxy-name select too little?";
    yield { severity: "warning", subject, text: "it holds no Service", remedy };
  }
}

function* serviceFindings({ services, endpoints }: WatcherState): Generator<Finding> {
  const known = new Set(services.map(subjectOf));
  for (const service of services) {
    const subject = subjectOf(service);
    const { ready = 0, terminating = 0, notReady = 0 } = service.endpoints ?? {};
    if (service.isHeadless || service.type === "ExternalName" || ready > 0) continue;
    if (terminating > 0) {
      const text = `no endpoint is ready; ${terminating} that terminate still receive its traffic`;
      yield { severity: "warning", subject, text, remedy: "look at the readiness of its new pods" };
    } else if (notReady > 0) {
      const text = `none of its ${notReady} endpoints is ready: connections are refused`;
      yield {
        severity: "error",
        subject,
        text,
        remedy: `look at its pods: kpng get endpoints --service ${serviceKey(service)}`,
      };
    } else {
      const text = "it has no endpoints: connections are refused";
      yield { severity: "warning", subject, text, remedy: "compare its selector with the labels of its pods" };
    }
  }
  const orphans = new Set(endpoints.map(({ namespace, service }) => `service/${namespace}/${service}`));
  for (const subject of orphans) {
    if (known.has(subject)) continue;
    const text = "EndpointSlices name it, but it does not exist";
    yield { severity: "warning", subject, text, remedy: "delete the slices, or create the Service" };
  }
}

/**
 * Finds addresses and node ports that several Services claim. The subject is the Service that gets no packets there, as
 * nodes decide it ({@link compareClaimants}); or that has the cluster IP of another Service, even at another port.
 */
function* addressFindings(services: readonly Service[]): Generator<Finding> {
  const ownerOf = new Map<string, Service>();
  for (const service of services) {
    if (!service.isHeadless) for (const address of service.clusterIps) ownerOf.set(address, service);
  }
  for (const service of services) {
    for (const address of new Set([...service.externalIps, ...service.loadBalancerIps])) {
      const owner = ownerOf.get(address);
      if (owner === undefined || owner === service) continue;
      const text = `it claims ${address}, the cluster IP of ${subjectOf(owner)}, which keeps its ports`;
      const remedy =
        "remove the address; the admission plugin DenyServiceExternalIPs forbids external IPs (CVE-2020-8554)";
      yield { severity: "error", subject: subjectOf(service), text, remedy };
    }
  }
  for (const [frontend, claimants] of claimedFrontends(services)) {
    const [owner, ...others] = claimants.sort(compareClaimants);
    for (const other of others) {
      // Reported above, once for all ports.
      if (owner?.kind === "clusterIP" && other.kind !== "clusterIP") continue;
      const text = `it gets no packets at ${frontend}, which service/${owner?.key} has`;
      yield {
        severity: "error",
        subject: `service/${other.key}`,
        text,
        remedy: "give each Service an address of its own",
      };
    }
  }
}

/** Returns the claims to each address and port, and node port. *Shape of a key:* `10.96.0.1 port 443/tcp`. */
function claimedFrontends(services: readonly Service[]): ReadonlyMap<string, Claimant[]> {
  const claims = new Map<string, Claimant[]>();
  for (const service of services) {
    const { clusterIps, externalIps, loadBalancerIps, createdAt, uid } = service;
    const age = { createdSeconds: createdAt === undefined ? undefined : Number(createdAt.seconds), uid };
    const key = serviceKey(service);
    // Of several claims of one Service, the first counts.
    const kinds = new Map<string, Claimant["kind"]>();
    const claim = (frontend: string, kind: Claimant["kind"]): void => {
      if (!kinds.has(frontend)) kinds.set(frontend, kind);
    };
    for (const { port, nodePort, protocol } of service.ports) {
      const name = enumWord(ProtocolSchema, protocol);
      if (!service.isHeadless) for (const address of clusterIps) claim(`${address} port ${port}/${name}`, "clusterIP");
      for (const address of loadBalancerIps) claim(`${address} port ${port}/${name}`, "loadBalancerIP");
      for (const address of externalIps) claim(`${address} port ${port}/${name}`, "externalIP");
      if (nodePort !== 0) claim(`node port ${nodePort}/${name}`, "nodePort");
    }
    for (const [frontend, kind] of kinds) getOrMake(claims, frontend, () => []).push({ ...age, key, kind });
  }
  return claims;
}

/** Finds Services whose zone hints are ignored: everywhere if an endpoint lacks hints, or in a zone that none names. */
function* hintFindings({ endpoints, nodes }: WatcherState): Generator<Finding> {
  const zones = new Set(nodes.map(({ zone }) => zone).filter((zone) => zone !== ""));
  const byService = Map.groupBy(
    endpoints.filter(({ isReady }) => isReady),
    ({ namespace, service }) => `service/${namespace}/${service}`,
  );
  for (const [subject, ready] of byService) {
    const hinted = ready.filter(hasZoneHint);
    if (hinted.length === 0) continue;
    if (hinted.length < ready.length) {
      const text = `${ready.length - hinted.length} of ${ready.length} ready endpoints have no zone hint, so no hint is used`;
      yield { severity: "warning", subject, text, remedy: "wait for the EndpointSlice controller, or look at its log" };
      continue;
    }
    const covered = new Set(hinted.flatMap(({ hintedZones }) => hintedZones));
    const left = [...zones].filter((zone) => !covered.has(zone)).sort();
    if (left.length === 0) continue;
    const text = `its hints name no endpoint for zone ${left.join(", ")}, whose nodes use all endpoints`;
    yield { severity: "warning", subject, text, remedy: "run endpoints in each zone, or drop trafficDistribution" };
  }
}

function* podCidrFindings({ nodes }: WatcherState): Generator<Finding> {
  const without = nodes.filter(({ isKnown, podCidrs }) => isKnown && podCidrs.length === 0);
  if (without.length === 0 || without.length < nodes.length) return;
  const text = "no Node has pod CIDRs, so the watcher cannot tell the traffic of pods from that of others";
  const remedy = "give the backends --cluster-cidr, or another --detect-local-mode";
  yield { severity: "warning", subject: "watcher", text, remedy };
}

function* nodeFindings({ nodes }: WatcherState, nowMs: number): Generator<Finding> {
  for (const { name, state, error, unappliedSince } of nodes) {
    const subject = `node/${name}`;
    if (state === ApplyState.FAILING) {
      const remedy = "run kpng get backend on the node, and read its log";
      yield { severity: "error", subject, text: `its last attempt to apply a change failed: ${error}`, remedy };
    } else if (state === ApplyState.ABSENT) {
      const remedy = "is the backend's pod running there, and does it reach this watcher? Another replica may serve it";
      yield { severity: "warning", subject, text: "no backend of this node follows this watcher", remedy };
    } else if (state === ApplyState.UNKNOWN) {
      const remedy = "compare --node-name of its backend with kubectl get nodes";
      yield { severity: "error", subject, text: "a backend follows it, but the cluster has no such Node", remedy };
    } else if (unappliedSince !== undefined && nowMs - timestampMs(unappliedSince) > slowMs) {
      const text = `a change has waited for ${formatAge(unappliedSince, nowMs)} to be applied`;
      yield {
        severity: "error",
        subject,
        text,
        remedy: "run kpng get backend on the node: is it overloaded or stuck?",
      };
    }
  }
}

/** Longest time that a node may take to apply a change without being a finding. */
const slowMs = 10_000;

function hasZoneHint({ hintedZones }: Endpoint): boolean {
  return hintedZones.length > 0;
}

function subjectOf(service: Service): string {
  return `service/${serviceKey(service)}`;
}

/** The state of a watcher and of its nodes. */
export interface WatcherState {
  readonly status: GetStatusResponse;
  readonly services: readonly Service[];
  readonly endpoints: readonly Endpoint[];
  readonly nodes: readonly Node[];
}

/**
 * Reads the state of a watcher, page by page. The lists may be some revisions apart, as with any two calls.
 */
export async function readWatcherState(client: InspectClient): Promise<WatcherState> {
  const status = await client.getStatus({});
  if (!status.isSynced) return { status, services: [], endpoints: [], nodes: [] };
  const services = await readPages(client.listServices, {}, (page) => page.services);
  const endpoints = await readPages(client.listEndpoints, {}, (page) => page.endpoints);
  const nodes = await readPages(client.listNodes, {}, (page) => page.nodes);
  return { status, services, endpoints, nodes };
}

/** `kpng analyze`: prints what is probably wrong with a cluster and its nodes, and what to do about it. */
export function makeAnalyze(hasNodes: boolean): InspectCommand {
  return {
    name: "analyze",
    description: "what is probably wrong, and what to do about it",
    options: [
      ...namespaceOptions,
      {
        flags: "-o, --output <format>",
        description: "text or json",
        default: "text",
        env: "KPNG_ANALYZE_OUTPUT",
        parse: (text) => {
          if (text === "text" || text === "json") return text;
          throw new InvalidArgumentError("expected text or json");
        },
      },
    ],
    examples: `
The exit code is 1 if there is a finding of severity error, and 0 otherwise.

Examples:
  COMMAND
  COMMAND -n shop
  COMMAND -o json | jq '.[] | select(.severity == "error")'
`,
    run: async (transport, _words, options) => {
      const { namespace } = splitName(undefined, options);
      const all = findFindings(await readWatcherState(inspectClient(transport)), { hasNodes });
      const findings = all.filter(({ subject }) => namespace === "" || subject.startsWith(`service/${namespace}/`));
      if (options.output === "json") {
        process.stdout.write(terminalText(`${JSON.stringify(findings, undefined, 2)}\n`));
      } else process.stdout.write(formatFindings(findings));
      if (findings.some(({ severity }) => severity === "error")) process.exitCode = 1;
    },
  };
}

/** Formats findings as two lines each: the finding, and the remedy below it. Ends with their number. */
export function formatFindings(findings: readonly Finding[]): string {
  if (findings.length === 0) return "No findings.\n";
  const table = formatTable(
    [
      { title: "", cell: ({ severity }: Finding) => severity },
      { title: "", cell: ({ subject }) => subject },
      { title: "", cell: ({ text }) => text },
    ],
    findings,
    false,
  );
  const lines = table.trimEnd().split("\n");
  const body = lines.map((line, index) => `${line}\n          → ${oneLine(findings[index]?.remedy ?? "")}\n`).join("");
  const errors = findings.filter(({ severity }) => severity === "error").length;
  return `${body}\n${formatCount(errors, "error")}, ${formatCount(findings.length - errors, "warning")}\n`;
}
