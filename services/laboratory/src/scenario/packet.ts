import { hasWholeAddresses, type ServiceManifest, type State } from "./build.ts";
import type { Deviation, ProxyProfile } from "./deviations.ts";
import {
  type AddressPair,
  boundAddress,
  type Family,
  gateways,
  type HostName,
  hosts,
  neighbourAddress,
  nodeOf,
  outsideAddress,
  type PodName,
  type Protocol,
  strangerAddress,
} from "./places.ts";

/** Sender of a packet: a host of the cluster, or the client outside with one of its addresses. */
export type Sender =
  | { readonly kind: "pod"; readonly name: PodName }
  | { readonly kind: "node"; readonly name: "n1" }
  | { readonly kind: "outside"; readonly address: AddressPair }
  /** A host on the nodes' network that tries to reach n1's loopback address. */
  | { readonly kind: "neighbour" };

export const pod = (name: PodName): Sender => ({ kind: "pod", name });
/** A process in the host network of n1. */
export const n1: Sender = { kind: "node", name: "n1" };
export const outside: Sender = { kind: "outside", address: outsideAddress };
export const neighbour: Sender = { kind: "neighbour" };
/** The client outside, with an address that no limited source range contains. */
export const stranger: Sender = { kind: "outside", address: strangerAddress };

/** Returns the same packet from each of these senders. */
export function fromEach<const P>(senders: readonly Sender[], packet: P) {
  return senders.map((from) => ({ from, ...packet }));
}

/** Destination of a packet, by the role of its address for the Service. */
export type Frontend =
  | { readonly kind: "clusterIP"; readonly service: string }
  | { readonly kind: "externalIP"; readonly service: string }
  | { readonly kind: "loadBalancerIP"; readonly service: string }
  | { readonly kind: "address"; readonly address: AddressPair; readonly isOfNode: boolean; readonly label: string };

export const clusterIP = (service: string): Frontend => ({ kind: "clusterIP", service });
export const externalIP = (service: string): Frontend => ({ kind: "externalIP", service });
export const loadBalancerIP = (service: string): Frontend => ({ kind: "loadBalancerIP", service });
const ofNode = (label: string, address: AddressPair): Frontend => ({ kind: "address", address, isOfNode: true, label });
/** Address of n1. */
export const nodeAddress = ofNode("n1", hosts.n1);
/** n1's address on the bridge of its pods. */
export const bridgeAddress = ofNode("n1's bridge", gateways.n1);
export const localhost = ofNode("localhost", { v4: "127.0.0.1", v6: "::1" });

/** Result of a packet. */
export type Outcome =
  | {
      /** Each of these hosts answers some of the packets, and no other host does. */
      readonly goesTo: readonly HostName[];
      /** Source address that they see: the sender's own or one of n1's. Undefined if it is not checked. */
      readonly source?: "kept" | "masqueraded" | undefined;
      /** All packets of one client go to the same host; different clients are spread over `goesTo`. */
      readonly isSticky?: boolean | undefined;
      /** Affinity time: after so many seconds without a new connection, a client may go to another host. */
      readonly forgottenAfterSeconds?: number | undefined;
    }
  | {
      /**
       * refused: the sender gets an error at once. silent: the sender gets no answer. untouched: no rule of the proxy
       * applies. The node itself then refuses packets to its own addresses and routes all others, which get no answer
       * in the laboratory. reset: a connection is accepted and then reset; a datagram gets no answer. unanswered: refused
       * or silent, which depends on time.
       */
      readonly verdict: "refused" | "silent" | "untouched" | "reset" | "unanswered";
    };

/** Packets with the same outcome: one for each protocol and family, unless limited to some. */
export type Packet = Outcome & {
  readonly from: Sender;
  readonly to: Frontend;
  readonly port: number;
  /** Default: TCP and UDP. */
  readonly protocol?: Protocol | undefined;
  /** Default: both. */
  readonly family?: Family | undefined;
  /** Outcome with proxies that differ. *Shape:* `{ "no-sctp": { verdict: "untouched" } }`. Default: none differ. */
  readonly deviations?: Readonly<Partial<Record<Deviation, Outcome>>> | undefined;
};

/** Packet of one protocol and family. */
export interface ConcretePacket {
  /** With the outcome of the proxy under test. */
  readonly packet: Packet;
  /** Why this outcome differs from kube-proxy's; undefined if it does not. */
  readonly reason: string | undefined;
  /** Deviations that are recorded for this packet, if the proxy has none of them. */
  readonly deviations: readonly string[];
  readonly protocol: Protocol;
  readonly family: Family;
  readonly address: string;
  readonly port: number;
  /** Port of the pod that must answer; undefined if no pod must. */
  readonly targetPort: number | undefined;
}

const defaultProtocols: readonly Protocol[] = ["tcp", "udp"];
const allFamilies: readonly Family[] = ["v4", "v6"];

/** The part of a scenario that decides where packets go. */
interface Situation {
  readonly state: State;
  readonly settings?: { readonly masqueradeAll?: boolean | undefined } | undefined;
}

/**
 * Returns one packet for each protocol and family of a scenario's packet, with the outcome that one proxy must have.
 */
export function concretePackets(situation: Situation, given: Packet, profile: ProxyProfile): readonly ConcretePacket[] {
  const { state } = situation;
  return allFamilies
    .filter((family) => family === (given.family ?? family))
    .flatMap((family) =>
      (given.protocol === undefined ? defaultProtocols : [given.protocol]).map((protocol) => {
        const { packet, reason } = expectedWith(profile, situation, given, protocol);
        return {
          packet,
          reason,
          deviations: reason === undefined ? Object.keys(given.deviations ?? {}) : [],
          protocol,
          family,
          address: addressOf(state, packet.to, family),
          port: packet.port,
          targetPort: "goesTo" in packet ? targetPortOf(state, packet, protocol) : undefined,
        };
      }),
    );
}

function expectedWith(
  profile: ProxyProfile,
  situation: Situation,
  { deviations, ...packet }: Packet,
  protocol: Protocol,
): Pick<ConcretePacket, "packet" | "reason"> {
  const { from, to, port, family } = packet;
  const deviation = profile.pick(deviations, protocol);
  const reason = deviation?.reason;
  const expected: Packet = deviation === undefined ? packet : { from, to, port, family, ...deviation.value };
  if (!("goesTo" in expected)) return { packet: expected, reason };
  const isOfNode = profile.reasonFor("source-is-node");
  if (isOfNode !== undefined) return { packet: { ...expected, source: "masqueraded" }, reason: reason ?? isOfNode };
  const ofSockets = profile.reasonFor("sockets-of-pods");
  if (ofSockets !== undefined && expected.source === "masqueraded" && isSocketOfPod(situation, packet, protocol)) {
    return { packet: { ...expected, source: "kept" }, reason: ofSockets };
  }
  return { packet: expected, reason };
}

/**
 * Returns true where a proxy that serves the sockets of pods lets them connect to an endpoint directly: TCP, without
 * affinity, and without masquerade-all, to a port of a Service.
 */
function isSocketOfPod({ state, settings }: Situation, packet: Packet, protocol: Protocol): boolean {
  const { from, to } = packet;
  if (protocol !== "tcp" || settings?.masqueradeAll === true) return false;
  if (portOf(state, packet, protocol) === undefined) return false;
  const isMeant = (name: string): boolean => to.kind === "address" || name === to.service;
  const isSticky = state.services.some(
    ({ metadata, spec }) => isMeant(metadata.name) && spec.sessionAffinity === "ClientIP",
  );
  return from.kind === "pod" && nodeOf[from.name] === "n1" && !isSticky;
}

/** Returns the address of a frontend. Errors: the state has no such Service, or the Service no such address. */
export function addressOf(state: State, frontend: Frontend, family: Family): string {
  if (frontend.kind === "address") return frontend.address[family];
  const service = state.services.find(({ metadata }) => metadata.name === frontend.service);
  if (service === undefined) throw new Error(`the scenario has no Service ${frontend.service}`);
  const all = {
    clusterIP: service.spec.clusterIPs,
    externalIP: service.spec.externalIPs ?? [],
    loadBalancerIP: (service.status.loadBalancer.ingress ?? []).map(({ ip }) => ip),
  }[frontend.kind];
  const found = all.find((address) => address.includes(":") === (family === "v6"));
  if (found === undefined) throw new Error(`Service ${frontend.service} has no ${frontend.kind} of family ${family}`);
  return found;
}

function targetPortOf(state: State, packet: Packet, protocol: Protocol): number {
  const { to, port } = packet;
  const found = portOf(state, packet, protocol);
  if (found !== undefined) return found.targetPort;
  const isWhole = state.services.some(
    (service) => to.kind !== "address" && service.metadata.name === to.service && hasWholeAddresses(service),
  );
  if (!isWhole) throw new Error(`no Service of the scenario has ${protocol} port ${port}`);
  return port;
}

function portOf(
  state: State,
  { to, port }: Packet,
  protocol: Protocol,
): ServiceManifest["spec"]["ports"][number] | undefined {
  const isNodePort = to.kind === "address" && to.isOfNode;
  return state.services
    .filter(({ metadata }) => to.kind === "address" || metadata.name === to.service)
    .flatMap(({ spec }) => spec.ports)
    .find((each) => each.protocol.toLowerCase() === protocol && (isNodePort ? each.nodePort : each.port) === port);
}

/** Returns the address of the sender if known before routing; that of a node depends on the route. */
export function senderAddress(sender: Sender, family: Family): string {
  switch (sender.kind) {
    case "outside":
      return sender.address[family];
    case "neighbour":
      return neighbourAddress[family];
    default:
      return hosts[sender.name][family];
  }
}

/** Returns all addresses that a masqueraded packet can have as source. */
export function masqueradeAddresses(family: Family): readonly string[] {
  return [hosts.n1[family], gateways.n1[family], boundAddress[family]];
}

/** Describes a packet for names and messages of tests, e.g. "pod a → clusterIP of web port 80". */
export function describePacket({ from, to, port }: Pick<Packet, "from" | "to" | "port">): string {
  const sender =
    from.kind === "outside"
      ? from === outside
        ? "outside"
        : from === stranger
          ? "stranger"
          : "client"
      : from.kind === "neighbour"
        ? "neighbour"
        : from.name;
  return `${sender} → ${to.kind === "address" ? to.label : `${to.kind} of ${to.service}`} port ${port}`;
}

/** Describes an outcome, e.g. "b or c, masqueraded", and the reason of a deviation. */
export function describeOutcome(outcome: Outcome, reason?: string): string {
  const because = reason === undefined ? "" : ` (because ${reason})`;
  if ("verdict" in outcome) return outcome.verdict + because;
  const { goesTo, source, isSticky } = outcome;
  const parts = [goesTo.join(" or "), source, isSticky === true ? "sticky" : undefined];
  return parts.filter((part) => part).join(", ") + because;
}
