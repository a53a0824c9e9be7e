import type { State } from "./build.ts";
import type { Deviation } from "./deviations.ts";
import type { Frontend, Packet, Sender } from "./packet.ts";
import type { HostName, Protocol } from "./places.ts";

/** Configuration of the proxy, named after its options. Absent options have kube-proxy's default. */
export interface Settings {
  readonly masqueradeAll?: boolean | undefined;
  /** Detection of local pods. Default "ClusterCIDR"; "none" is ClusterCIDR without a CIDR. */
  readonly detectLocal?: "ClusterCIDR" | "NodeCIDR" | "BridgeInterface" | "InterfaceNamePrefix" | "none" | undefined;
  /** Ranges of the node's addresses that serve node ports. Default: all. */
  readonly nodePortAddresses?: readonly string[] | undefined;
  /** Default true. */
  readonly localhostNodePorts?: boolean | undefined;
}

/**
 * Firewall of the node, for both families: the chains whose policy is DROP. With INPUT, the usual rules accept
 * established connections, the loopback device and ICMPv6.
 */
export interface Firewall {
  readonly drops: readonly ("INPUT" | "FORWARD")[];
}

/** Expected response of a health-check node port on n1. */
export interface HealthCheck {
  readonly port: number;
  /** Undefined if the port must be closed. */
  readonly answer: { readonly status: 200 | 503; readonly localEndpoints: number } | undefined;
  /** The node's firewall drops packets to the port, unless the proxy opens it. Default false. */
  readonly isBehindFirewall?: boolean | undefined;
}

/** State of the cluster, with the expected results of packets. */
export interface Scenario {
  readonly name: string;
  readonly settings?: Settings | undefined;
  /** Firewall set up by the administrator of the node. Default: none. */
  readonly firewall?: Firewall | undefined;
  readonly state: State;
  readonly packets: readonly Packet[];
  readonly healthChecks?: readonly HealthCheck[] | undefined;
  /** Proxies with this deviation have other results in each run: they do not run it. Default: all run it. */
  readonly notRunWith?: Deviation | undefined;
}

/** Fate of a flow during a change. */
type FlowFate = "goes on" | { readonly movesTo: readonly HostName[] } | "gets no answer";

/** Connection, or datagrams from one port, that continues while the state changes. */
export interface Flow {
  readonly from: Sender;
  readonly to: Frontend;
  readonly port: number;
  readonly protocol: Exclude<Protocol, "sctp">;
  /** Expected endpoint after the change: the same as before, one of these, or none. */
  readonly becomes: FlowFate;
  /** Fate with proxies that differ. Default: none differ. */
  readonly deviations?: Readonly<Partial<Record<Deviation, FlowFate>>> | undefined;
}

/** A change to the cluster while traffic is flowing. */
export interface Update {
  readonly name: string;
  readonly before: Scenario;
  readonly after: Scenario;
  /** Event in place of a change of the state: `after` then has the state of `before`. */
  readonly event?: "restart" | "rules lost" | undefined;
  readonly flows: readonly Flow[];
}
