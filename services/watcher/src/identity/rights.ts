import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { Code, ConnectError } from "@connectrpc/connect";

/**
 * Permissions of a client, from its certificate, its token, or the way it is connected (docs/design/identity.md). The
 * services of the watcher check these rights before they read the state.
 */
export interface Rights {
  /** Names of the nodes whose views the client may read; "all" for every node. */
  readonly nodes: ReadonlySet<string> | "all";
  /** The state of the whole cluster, for relays. */
  readonly hasState: boolean;
  /** Every method of the inspect API. Without it, the client may inspect its own nodes. */
  readonly hasInspection: boolean;
  /** The client's identity for log messages. *Shape:* `certificate "n1"`, `system:serviceaccount:kube-system:kpng`. */
  readonly identity: string;
  /** Why the token of the call was not accepted. Refusals say it. */
  readonly tokenProblem?: TokenProblem | undefined;
}

/** Why a token gives no rights. */
export interface TokenProblem {
  /** UNAVAILABLE if the token could not be checked, and may be accepted later. */
  readonly code: Code.Unauthenticated | Code.Unavailable;
  /** *Shape:* "the token has expired". */
  readonly message: string;
}

/** Rights to read everything: of clients on a unix socket or loopback, and with `--allow-anonymous` of all clients. */
export function everyRight(identity: string): Rights {
  return { nodes: "all", hasState: true, hasInspection: true, identity };
}

/** Rights of clients over TCP that prove no identity. */
export const noRights: Rights = { nodes: new Set(), hasState: false, hasInspection: false, identity: "" };

/** Returns the rights of a call that has those of its connection and those of its token. */
export function joinRights(connection: Rights, token: Rights): Rights {
  const [a, b] = [connection.nodes, token.nodes];
  return {
    ...connection,
    nodes: a === "all" || b === "all" ? "all" : a.union(b),
    hasState: connection.hasState || token.hasState,
    hasInspection: connection.hasInspection || token.hasInspection,
    identity: [connection.identity, token.identity].filter((identity) => identity !== "").join(" and "),
  };
}

/** A socket of a client, or the view of it that an HTTP/2 session gives. */
export type ClientSocket = Pick<Socket, "remoteAddress"> &
  Partial<Pick<TLSSocket, "authorized" | "getPeerCertificate">>;

/**
 * Returns the rights that a client has by its connection: every right on a unix socket and over loopback, those of its
 * certificate over TLS, and otherwise none. A TCP connection that is closed already has no address, and so no rights.
 */
export function rightsOfConnection(
  socket: ClientSocket,
  isUnix: boolean,
  trust: Trust,
  nowMs: number = Date.now(),
): Rights {
  const { allowsAnonymous = false, trustsLoopback = true } = trust;
  if (isUnix) return everyRight("a client of the unix socket");
  if (trustsLoopback && isLoopback(socket.remoteAddress ?? "")) return everyRight("a client on this machine");
  if (allowsAnonymous) return everyRight("an anonymous client");
  // The TLS listener has verified the certificate.
  const certificate = socket.authorized === true ? socket.getPeerCertificate?.() : undefined;
  // {} or null without a certificate, for example in a resumed session.
  if (!certificate?.subject) return noRights;
  // A resumed session is not verified again, so its certificate may have expired since.
  if (Date.parse(certificate.valid_to) <= nowMs) return noRights;
  return rightsOfCertificate(certificate.subjectaltname, [certificate.subject.CN].flat()[0] ?? "");
}

/** Clients over TCP that need no proof of their identity. */
export interface Trust {
  /** Gives every right to all clients (`--allow-anonymous`). Default false. */
  readonly allowsAnonymous?: boolean | undefined;
  /** Gives every right to clients over loopback (`--trust-loopback`). Default true. */
  readonly trustsLoopback?: boolean | undefined;
}

/** True for a loopback address, also for a mapped one, as a dual-stack listener reports IPv4 clients. */
export function isLoopback(address: string): boolean {
  return address === "::1" || /^(::ffff:)?127\.\d+\.\d+\.\d+$/.test(address);
}

/**
 * Returns the rights that a verified client certificate states in its URI names.
 *
 * | URI name | right |
 * |---|---|
 * | `kpng://node/n1` | the view of node `n1` |
 * | `kpng://node/*` | the views of all nodes |
 * | `kpng://state` | the state of the whole cluster, and the views of all nodes |
 * | `kpng://inspection` | the whole inspect API |
 *
 * Other names are ignored. *Shape:* `subjectAltName` as Node.js prints it, `URI:kpng://node/n1, DNS:example`; a name
 * with a comma or a quote is printed in quotes, and is never one of ours.
 */
export function rightsOfCertificate(subjectAltName: string | undefined, commonName: string): Rights {
  const names = [...(subjectAltName ?? "").matchAll(namePattern)].map(([name]) => name);
  const rights = names.flatMap((name) => (name.startsWith(prefix) ? [name.slice(prefix.length)] : []));
  const nodes = rights.flatMap((right) => (right.startsWith("node/") ? [right.slice("node/".length)] : []));
  const hasState = rights.includes("state");
  return {
    nodes: hasState || nodes.includes("*") ? "all" : new Set(nodes.filter((name) => name !== "")),
    hasState,
    hasInspection: rights.includes("inspection"),
    identity: `certificate "${commonName}"`,
  };
}

const prefix = "URI:kpng://";

/** A name with its type. Node.js prints a value with a comma or a quote as a JSON string. */
const namePattern = /[^:, ][^:,]*:(?:"(?:[^"\\]|\\.)*"|[^,"]*)/g;

/** Allows a request for the view of a node. Errors: UNAUTHENTICATED without any identity; PERMISSION_DENIED. */
export function checkNodeRight(rights: Rights, nodeName: string): void {
  if (rights.nodes === "all" || rights.nodes.has(nodeName)) return;
  throw refusal(rights, `read the view of node "${nodeName}"`);
}

/** True if the client may read something. */
function hasAnyRight({ nodes, hasState, hasInspection }: Rights): boolean {
  return nodes === "all" || nodes.size > 0 || hasState || hasInspection;
}

/**
 * Allows a request that reveals no object of the cluster, to any client that may read something. Errors: as {@link
 * checkNodeRight}.
 */
export function checkAnyRight(rights: Rights): void {
  if (!hasAnyRight(rights)) throw refusal(rights, "ask for the position of the state");
}

/** Allows a request for the state of the whole cluster. Errors: as {@link checkNodeRight}. */
export function checkStateRight(rights: Rights): void {
  if (!rights.hasState) throw refusal(rights, "read the state of the whole cluster");
}

/**
 * Allows a call of the inspect API; `nodeName` is the only node that the answer concerns, or undefined. Errors: as
 * {@link checkNodeRight}.
 */
export function checkInspectionRight(rights: Rights, nodeName: string | undefined): void {
  if (rights.hasInspection) return;
  if (nodeName === undefined || nodeName === "") throw refusal(rights, "inspect the whole cluster");
  if (rights.nodes !== "all" && !rights.nodes.has(nodeName)) throw refusal(rights, `inspect node "${nodeName}"`);
}

function refusal({ identity, tokenProblem }: Rights, what: string): ConnectError {
  if (tokenProblem !== undefined) {
    const { code, message } = tokenProblem;
    return new ConnectError(`${message}; without a valid token, this client may not ${what}`, code);
  }
  if (identity !== "") return new ConnectError(`${identity} may not ${what}`, Code.PermissionDenied);
  return new ConnectError(
    `a client without a certificate or token may not ${what}; the watcher's --allow-anonymous would permit it`,
    Code.Unauthenticated,
  );
}
