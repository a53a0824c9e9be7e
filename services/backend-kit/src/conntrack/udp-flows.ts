import { type Family, families, parseAddress, withoutDottedIPv6 } from "@kpng/model/address.ts";
import type { NodeView, ServiceItem } from "@kpng/model/node-view.ts";
import { FrontendClaims } from "@kpng/service-plan/frontend-claims.ts";
import { answeringAddresses, answeringEndpoints, planService } from "@kpng/service-plan/plan-service.ts";
import type { NodePlan } from "@kpng/service-plan/service-plan.ts";
import { describeEnd, runProgram, toolEnvironment } from "../exec/run-program.ts";
import { BackendError } from "../types/backend-error.ts";

export interface Frontends {
  /** Frontends in the current view, each with the endpoints that may serve it. */
  readonly present: ReadonlyMap<FrontendKey, Servers>;
  /** Previous frontends whose flows have not been examined since they were removed. */
  readonly gone: ReadonlySet<FrontendKey>;
  readonly listeners?: UdpListeners | undefined;
  /** True for an address of this node on which node ports are served. */
  readonly isNodePortAddress: (address: string) => boolean;
}

/**
 * Returns true if the current rules would not send a new flow from this client to the same destination.
 *
 * | frontend | flow | stale |
 * |---|---|---|
 * | present, with endpoints | to one of them | no |
 * | present, with endpoints | to another destination, or not translated (started before the rules) | yes |
 * | present without endpoints, or gone | translated | yes |
 * | present without endpoints, or gone | not translated | no, because a new flow would be the same |
 * | none | translated, to a local listener that now serves another frontend | yes |
 * | none | any other | no |
 */
export function isStale(flow: UdpFlow, { listeners, ...frontends }: Frontends): boolean {
  const { destination, destinationPort, family, replySource, replySourcePort } = flow;
  const isKnown = (key: FrontendKey): boolean => frontends.present.has(key) || frontends.gone.has(key);
  // An address of the node may also be an external IP; then the endpoints of both frontends are valid.
  let known = [ipFrontend(destination, destinationPort)].filter(isKnown);
  const nodePort = nodePortFrontend(family, destinationPort);
  if (isKnown(nodePort) && frontends.isNodePortAddress(destination)) known.push(nodePort);
  // A whole address gets what the frontends of ports leave, except at addresses of the node.
  const whole = wholeFrontend(destination);
  if (known.length === 0 && isKnown(whole) && !frontends.isNodePortAddress(destination)) {
    if (frontends.present.get(whole)?.has(`${replySource} *`) === true) return replySourcePort !== destinationPort;
    known = [whole];
  }
  const isTranslated = replySource !== destination || replySourcePort !== destinationPort;
  if (known.length === 0) return isTranslated && listeners?.has(`${replySource} ${replySourcePort}`) === true;
  const servers = known.map((key) => frontends.present.get(key)).filter((set) => set !== undefined);
  if (servers.some((set) => set.has(`${replySource} ${replySourcePort}`))) return false;
  return isTranslated || servers.some((set) => set.size > 0);
}

/**
 * Key of the flows that one filter of the conntrack program deletes: all clients of one frontend that use one dead
 * endpoint. A thousand clients of a deleted DNS server cost only one deletion.
 */
export function groupOf({ destination, destinationPort, replySource, replySourcePort }: UdpFlow): string {
  return `${destination} ${destinationPort} ${replySource} ${replySourcePort}`;
}

/**
 * Identifies a UDP frontend: an address and port at which a Service receives datagrams. *Shape:* `10.96.0.10 53` for an
 * IP of the Service; `v6 * 30053` for its node port on all node-port addresses of a family; `10.96.0.10 as a whole`.
 */
export type FrontendKey = string;

/** Endpoints that may answer at a frontend, as `address port`; `address *` at a whole address. */
type Servers = ReadonlySet<string>;

/**
 * Local listeners to which packet rules redirect frontends, each with the frontend that it serves. *Shape of a
 * listener:* `192.0.2.1 20173`.
 */
export type UdpListeners = ReadonlyMap<string, FrontendKey>;

export const ipFrontend = (address: string, port: number): FrontendKey => `${address} ${port}`;
export const nodePortFrontend = (family: Family, port: number): FrontendKey => `${family} * ${port}`;

/** A whole address, at the ports that have no other frontend. */
const wholeFrontend = (address: string): FrontendKey => `${address} as a whole`;

export function familyOfFrontend(key: FrontendKey): Family {
  if (key.includes("*")) return key.startsWith("v6") ? "v6" : "v4";
  return key.includes(":") ? "v6" : "v4";
}

/**
 * Returns all UDP frontends of a view with their serving endpoints. The set of a frontend without such endpoints is
 * empty.
 *
 * If several Services claim a frontend, only endpoints of its owner answer there; see `FrontendClaims`. If the
 * endpoints of all claimants counted, a Service that uses the external IP of a newer Service would keep the clients
 * that it had before the newer one was created.
 *
 * Traffic policies and topology hints are ignored: like a TCP connection, a running flow stays at its endpoint when
 * they change.
 *
 * *Source:* kube-proxy `conntrack/cleanup.go`; it skips frontends without serving endpoints, however, and therefore
 * leaves their flows pointing at dead pods.
 *
 * `servesWholeAddresses`: the proxy serves whole addresses, so that it is responsible for their flows at all ports.
 *
 * The `listeners` of a proxy that carries traffic also count as servers. A flow that an earlier proxy sent directly to
 * an endpoint stays there.
 *
 * Pure; O(Services + endpoints of Services with UDP ports).
 */
export function udpFrontends(
  view: NodeView,
  listeners: UdpListeners = new Map(),
  servesWholeAddresses = false,
): ReadonlyMap<FrontendKey, Servers> {
  const frontends = new Map<FrontendKey, Set<string>>();
  const services = [...view.services.values()].filter((item) => hasUdpFrontend(item, servesWholeAddresses));
  for (const family of families) {
    const claims = new FrontendClaims();
    // The frontends do not depend on the endpoints.
    const plans = services.map(({ service }) => planService({ service, endpoints: [] }, claimingNode(family)));
    for (const plan of plans) claims.put(plan);
    for (const [index, plan] of plans.entries()) {
      const { ports, whole } = claims.withOwned(plan);
      for (const port of ports.filter(({ protocol }) => protocol === "UDP")) {
        const servers = answeringEndpoints(services[index], port, family).map((each) => `${each.address} ${each.port}`);
        for (const { address, port: number } of port.frontends) {
          const key = address === undefined ? nodePortFrontend(family, number) : ipFrontend(address, number);
          frontends.set(key, new Set(servers));
        }
      }
      if (whole === undefined || !servesWholeAddresses) continue;
      const servers = answeringAddresses(services[index], family).map((address) => `${address} *`);
      for (const { address } of whole.frontends) frontends.set(wholeFrontend(address), new Set(servers));
    }
  }
  for (const [listener, frontend] of listeners) frontends.get(frontend)?.add(listener);
  return frontends;
}

/** A placeholder: the addresses and ports of a plan's frontends do not depend on the node. */
function claimingNode(family: Family): NodePlan {
  return {
    family,
    podTraffic: undefined,
    isMasqueradeAll: false,
    nodePortAddresses: [],
    isLoopbackNodePorts: false,
    nodeAddress: undefined,
    serviceCIDRs: [],
  };
}

export function hasUdpFrontend(item: ServiceItem | undefined, servesWholeAddresses: boolean): boolean {
  if (item === undefined) return false;
  const { ports, mapIP } = item.service;
  return ports.some((port) => port.protocol === "UDP") || (servesWholeAddresses && mapIP);
}

/** A UDP entry in the conntrack table: the destination of its datagrams before and after NAT. */
export interface UdpFlow {
  readonly family: Family;
  /** Address to which the client sends, before NAT. */
  readonly destination: string;
  readonly destinationPort: number;
  /** Address that answers: an endpoint after DNAT, otherwise the destination itself. */
  readonly replySource: string;
  readonly replySourcePort: number;
}

const direction = String.raw`\bsrc=(\S+) dst=(\S+) sport=(\d+) dport=(\d+)\b`;
const flowLine = new RegExp(String.raw`(?:^|\s)udp\s+17\s.*?${direction}.*?${direction}`);

/**
 * Parses a line that `conntrack` prints; undefined if it is not a UDP flow.
 *
 * *Shape:* `udp 17 29 src=A dst=B sport=1 dport=2 [UNREPLIED] src=C dst=D sport=3 dport=4 mark=0 use=1`: the original
 * direction, then the reply. The text around these fields differs between kernels; the fields themselves have not
 * changed since the first version of the tool. The tool's XML output would be three times as long.
 */
export function parseFlow(line: string): UdpFlow | undefined {
  const match = flowLine.exec(line);
  if (match === null) return undefined;
  const destination = parseAddress(withoutDottedIPv6(match[2] ?? ""));
  const reply = parseAddress(withoutDottedIPv6(match[5] ?? ""));
  if (destination === undefined || reply === undefined) return undefined;
  return {
    family: destination.family,
    destination: destination.address,
    destinationPort: Number(match[4]),
    replySource: reply.address,
    replySourcePort: Number(match[7]),
  };
}

/** Access to the UDP entries of the kernel's conntrack table. Errors: CONNTRACK_FAILED. */
export interface ConntrackTool {
  /** Calls `visit` for each UDP flow of a family, in one pass over the table. */
  visitUdp(family: Family, visit: (flow: UdpFlow) => void, signal: AbortSignal): Promise<void>;
  /**
   * Deletes all flows that have one of these pairs of destination and reply source; some may be deleted when it fails.
   * Returns the number of deleted flows.
   */
  deleteUdp(groups: readonly UdpFlow[], signal: AbortSignal): Promise<number>;
}

/** Time limit for one run of the tool, in milliseconds. Listing a million entries takes about 5 s. */
const timeoutMs = 60_000;

/** Maximum output of one run, in bytes. A list of a million entries takes about 200 MB. */
const maxOutputBytes = 1024 * 1024 * 1024;

/** Returns a `ConntrackTool` that runs the program `conntrack`. `program` is its name or path. */
export function createConntrackTool(program = "conntrack"): ConntrackTool {
  return {
    async visitUdp(family, visit, signal) {
      await run([program, "-L", "-p", "udp", "-f", familyName[family]], signal, visit);
    },
    async deleteUdp(groups, signal) {
      const endMs = performance.now() + timeoutMs;
      let count = 0;
      // The option -R, which reads many deletions, would save little: each one reads the whole table.
      for (const [index, group] of groups.entries()) {
        // Rules may have changed: the next search decides anew.
        if (performance.now() > endMs) {
          const text = `${program} made ${index} of ${groups.length} deletions in ${timeoutMs} ms`;
          throw new BackendError("CONNTRACK_FAILED", text);
        }
        await run([program, ...deletionArguments(group)], signal, () => count++);
      }
      return count;
    },
  };
}

const familyName = { v4: "ipv4", v6: "ipv6" } as const;

function deletionArguments(flow: UdpFlow): readonly string[] {
  const { family, destination, destinationPort, replySource, replySourcePort } = flow;
  return [
    ...["-D", "-f", familyName[family], "-p", "udp", "-d", destination, "--dport", `${destinationPort}`],
    ...["-r", replySource, "--reply-port-src", `${replySourcePort}`],
  ];
}

async function run(command: readonly string[], signal: AbortSignal, visit: (flow: UdpFlow) => void): Promise<void> {
  const [program, option] = command;
  let partialLine = "";
  const takeText = (text: string): void => {
    const lines = (partialLine + text).split("\n");
    partialLine = lines.pop() ?? "";
    for (const line of lines) {
      const flow = parseFlow(line);
      if (flow !== undefined) visit(flow);
    }
  };
  const end = await runProgram(command, {
    timeoutMs,
    stdout: takeText,
    signal,
    env: toolEnvironment(),
    maxOutputBytes,
  });
  takeText("\n");
  if (end.kind === "not-started") {
    const isMissing = end.cause.code === "ENOENT";
    const text = isMissing ? `command ${program} not found (Debian package conntrack)` : `cannot run ${program}`;
    throw new BackendError("CONNTRACK_FAILED", text, { cause: end.cause });
  }
  // A deletion also exits with 1 if nothing matched, because the flow has timed out in the meantime.
  if (end.kind === "exited" && (end.exitCode === 0 || end.stderr.includes(": 0 flow entries"))) return;
  const text = `${program} ${option} failed (${describeEnd(end, timeoutMs)}): ${end.stderr.trim()}`;
  throw new BackendError("CONNTRACK_FAILED", text);
}
