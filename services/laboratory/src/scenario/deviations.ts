import { type Family, families, type Protocol } from "./places.ts";

/**
 * Ways in which service proxies differ from kube-proxy's iptables mode on purpose. Each is recorded at the packets
 * that it concerns, with their outcome; a proxy that differs in that way names it in its file of exceptions, with the
 * reason.
 */
export const deviations = {
  "unknown-port-refused": "refuses connections to a cluster IP at a port or protocol that its Service does not have",
  "service-address-refused": "refuses connections to an external or load-balancer IP at a port that no Service has",
  "deleted-address-refused": "refuses connections to the cluster IP of a deleted Service while old ones end",
  "reset-instead-of-drop": "accepts a TCP connection and resets it where kube-proxy drops packets",
  "no-loopback-node-ports": "serves no node ports on 127.0.0.1, for the node's own processes and for its neighbours",
  "loopback-closed-to-neighbours": "serves node ports on 127.0.0.1, but not for hosts on the node's network",
  "external-ip-before-node-port": "refuses a node port at the external IP of a Service that has no endpoint",
  "no-sctp": "does not serve SCTP",
  "no-ipv4": "serves IPv6 only, and nothing is sent over IPv4",
  "no-ipv6": "serves IPv4 only, and nothing is sent over IPv6",
  "forward-policy-applies":
    "policy DROP in FORWARD also drops its packets, because it cannot accept them in another program's chain",
  "forward-policy-bypassed": "its packets do not pass chain FORWARD, so that policy DROP there does not affect them",
  "input-policy-applies": "policy DROP in INPUT drops packets to its node ports and load-balancer IPs",
  "input-policy-before-refusal": "a firewall's chain may drop a packet before the proxy can refuse it",
  "health-port-not-opened": "may leave the health-check node port closed in the node's firewall",
  "affinity-may-outlast-timeout": "a client may stay at its endpoint after the affinity timeout",
  "sockets-of-pods": "the sockets of the node's pods connect to endpoints directly, so that no packet is masqueraded",
  "remote-hairpin-unanswered": "does not masquerade the packets of a pod of another node that reaches itself",
  "source-ranges-without-endpoint": "drops packets from outside the source ranges also if there is no endpoint",
  "source-is-node": "endpoints see connections of the node, whoever the client is",
  "restart-ends-connections": "established connections end with the process",
  "stale-udp-without-endpoint": "keeps UDP flows of a Service that has no endpoint left",
  "whole-addresses-served": "serves all ports and protocols of the addresses of a Service that asks for it",
  "claims-vary": "serves one of several Services with the same address, and which one is not defined",
} as const;

/** Name of a deviation. */
export type Deviation = keyof typeof deviations;

/** Returns true if a name is that of a deviation. */
export function isDeviation(name: string): name is Deviation {
  return Object.hasOwn(deviations, name);
}

/**
 * Exceptions of a proxy: its deviations, with their reasons.
 *
 * A deviation may be limited to one protocol. *Shape of a key:* `no-loopback-node-ports`, `no-loopback-node-ports/udp`.
 */
export class ProxyProfile {
  /** Of a proxy that differs nowhere from kube-proxy's iptables mode. */
  static readonly kubeProxy = new ProxyProfile(new Map());

  readonly #reasons: Exceptions;
  readonly #used = new Set<string>();

  constructor(reasons: Exceptions) {
    this.#reasons = reasons;
  }

  /** Returns why the proxy has a deviation, for one protocol; undefined if it has not. */
  reasonFor(deviation: Deviation, protocol?: Protocol): string | undefined {
    const keys = [deviation, ...(protocol === undefined ? [] : [`${deviation}/${protocol}`])];
    const key = keys.find((each) => this.#reasons.has(each));
    if (key === undefined) return undefined;
    this.#used.add(key);
    return this.#reasons.get(key);
  }

  /** Families that the proxy serves. */
  get families(): readonly Family[] {
    return families.filter((family) => this.reasonFor(`no-ip${family}`) === undefined);
  }

  /** Returns the deviations that no packet, flow or scenario has asked about so far. */
  get unused(): readonly string[] {
    return [...this.#reasons.keys()].filter((key) => isDeviation(key.split("/")[0] ?? "") && !this.#used.has(key));
  }

  /** Returns the first recorded value for a deviation that the proxy has, with the reason; undefined if none is. */
  pick<Value>(
    records: Readonly<Partial<Record<Deviation, Value>>> | undefined,
    protocol?: Protocol,
  ): { readonly value: Value; readonly reason: string } | undefined {
    for (const [name, value] of Object.entries(records ?? {}) as [Deviation, Value][]) {
      const reason = this.reasonFor(name, protocol);
      if (reason !== undefined) return { value, reason };
    }
    return undefined;
  }
}

/** What a backend does differently, by the name of a case or of a deviation, with the reason. */
export type Exceptions = ReadonlyMap<string, string>;

/**
 * Parses a file of exceptions: a name per line, and the reason after the first space; a line that begins with `#` is a
 * comment. Errors: throws for a name that is not known, or a line without a reason.
 */
export function parseExceptions(text: string, isKnown: (name: string) => boolean): Exceptions {
  const lines = text
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "" && !line.startsWith("#"));
  return new Map(
    lines.map((line) => {
      const [, name = "", reason = ""] = /^(\S+)\s*(.*)$/.exec(line) ?? [];
      if (!isKnown(name)) throw new Error(`"${name}" is neither a case nor a deviation`);
      if (reason === "") throw new Error(`the exception ${name} has no reason`);
      return [name, reason];
    }),
  );
}
