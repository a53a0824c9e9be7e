import type { State } from "./manifest.ts";
import type { Frontend, Packet, Sender } from "./packet.ts";
import type { HostName, Protocol } from "./places.ts";

/** How the proxy is configured, in words of its options; what is absent has kube-proxy's default. */
export interface Settings {
  readonly masqueradeAll?: boolean | undefined;
  /** How pods are told from the rest. Default "ClusterCIDR"; "none" is ClusterCIDR without one. */
  readonly detectLocal?: "ClusterCIDR" | "NodeCIDR" | "BridgeInterface" | "InterfaceNamePrefix" | "none" | undefined;
  /** Ranges of the node's addresses that serve node ports. Default: all. */
  readonly nodePortAddresses?: readonly string[] | undefined;
  /** Default true. */
  readonly localhostNodePorts?: boolean | undefined;
}

/**
 * A firewall of the node's own, of both families. `policy`: what happens to packets that no rule names, chain by chain.
 * With INPUT "DROP" what belongs to connections of the node, its loopback device and ICMPv6 are let in, as everywhere.
 */
export interface Firewall {
  readonly drops: readonly ("INPUT" | "FORWARD")[];
}

/** What the server of a health-check node port on n1 says. */
export interface HealthCheck {
  readonly port: number;
  /** Undefined: nobody listens there. */
  readonly answer: { readonly status: 200 | 503; readonly localEndpoints: number } | undefined;
}

/** A state of the cluster, and what becomes of packets in it. */
export interface Scenario {
  readonly name: string;
  readonly settings?: Settings | undefined;
  /** What the node's administrator set. Default: nothing. */
  readonly firewall?: Firewall | undefined;
  readonly state: State;
  readonly packets: readonly Packet[];
  readonly healthChecks?: readonly HealthCheck[] | undefined;
}

/** A connection, or datagrams from one port, that goes on while the state changes. */
export interface Flow {
  readonly from: Sender;
  readonly to: Frontend;
  readonly port: number;
  readonly protocol: Exclude<Protocol, "sctp">;
  /** Who answers after the change: the same as before, one of these, or nobody any more. */
  readonly becomes: "goes on" | { readonly movesTo: readonly HostName[] } | "gets no answer";
  /** Backends that are known to do otherwise, with the reason. */
  readonly knownWrong?: Readonly<Record<string, string>> | undefined;
}

/** A change of the cluster while packets flow. */
export interface Update {
  readonly name: string;
  readonly before: Scenario;
  readonly after: Scenario;
  /** What happens apart from the change of the state. */
  readonly event?: "restart" | "rules lost" | undefined;
  readonly flows: readonly Flow[];
}
