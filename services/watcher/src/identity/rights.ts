import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { Code, ConnectError } from "@connectrpc/connect";

/**
 * What a client may read. Every service of the watcher checks these rights before it reads the state.
 *
 * A node sends its name with its request, but anybody can claim a name: with another node's name, a client could read
 * that node's view and acknowledge changes for it. A client's rights to a node therefore come from proof of its
 * identity; the name in the request only selects among those rights.
 *
 * | Client | Proof | Rights |
 * |---|---|---|
 * | on a unix socket | file permissions | all |
 * | over loopback | access to the machine's network namespace; not with `--trust-loopback=false` | all |
 * | with a certificate | verified by `--listen-tls-ca` | its URI names; see {@link rightsOfCertificate} |
 * | with a ServiceAccount token, over TLS | the API server's TokenReview | those of its account; see `rightsOfToken` |
 * | any other | none; all with `--allow-anonymous` | none: health and reflection only |
 *
 * The rights of a connection and those of a call's token add up ({@link joinRights}).
 *
 * **Example.** `--token-audience kpng --node-accounts kube-system/kpng-node`. The pods of a DaemonSet share this
 * account, but the API server writes the node of each pod into its token. For a pod on n1, the watcher's TokenReview
 * returns
 *
 * ```text
 * username system:serviceaccount:kube-system:kpng-node, authentication.kubernetes.io/node-name n1, audience kpng
 *   → nodes {n1}, no state, no inspection
 * Watch n1           allowed
 * Watch n2           PERMISSION_DENIED: ServiceAccount kube-system/kpng-node on node "n1" may not read the view of node "n2"
 * no token           UNAUTHENTICATED
 * an expired token   UNAUTHENTICATED: the token has expired; …
 * API server away    UNAVAILABLE: the node keeps its rules and tries again
 * ```
 *
 * Rights are checked when a call begins, and a watch checks them at each request. A token is checked again every few
 * seconds, and ends the call once it is refused or expired. A certificate counts until its connection reaches its
 * maximum age (`Connections`).
 *
 * **Rejected.** *The common name of a certificate*: issuers restrict URI names by policy, and one certificate can hold
 * several. *The kubelet's certificate* (`system:node:n1`): its CA also signs certificates of other clients, and a
 * backend would need the kubelet's key. *Client addresses*: pods on the host network share them. *Our own verification
 * of token signatures*: it would take 300 lines, three options and keys installed on relays, and deleted pods would
 * keep their rights. *Tokens over plain TCP*: anybody on the network path could read and use them.
 */
export interface Rights {
  /** Nodes whose views the client may read, and whose changes it may acknowledge; "all" for every node. */
  readonly nodes: ReadonlySet<string> | "all";
  /** True if the client may read the state of the whole cluster, as relays do. */
  readonly hasState: boolean;
  /** True if the client may call every method of the inspect API. Otherwise, it may inspect only its own nodes. */
  readonly hasInspection: boolean;
  /**
   * Name of the client in messages. *Shape:* `certificate "n1"`, `ServiceAccount kube-system/kpng-node on node "n1"`;
   * "" without a proof.
   */
  readonly identity: string;
  /**
   * Why the client's certificate or the call's token was not accepted; included in the message when a call is refused.
   */
  readonly problem?: ProofProblem | undefined;
}

export interface ProofProblem {
  /** UNAVAILABLE if a token could not be checked but may be accepted later. */
  readonly code: Code.Unauthenticated | Code.Unavailable;
  /** *Shape:* "the token has expired". */
  readonly message: string;
}

export function everyRight(identity: string): Rights {
  return { nodes: "all", hasState: true, hasInspection: true, identity };
}

/** Rights of a client that proves no identity. */
export const noRights: Rights = { nodes: new Set(), hasState: false, hasInspection: false, identity: "" };

/** Returns the rights of a call: the rights of its connection and of its token combined. */
export function joinRights(connection: Rights, token: Rights): Rights {
  const [a, b] = [connection.nodes, token.nodes];
  return {
    ...connection,
    nodes: a === "all" || b === "all" ? "all" : a.union(b),
    hasState: connection.hasState || token.hasState,
    hasInspection: connection.hasInspection || token.hasInspection,
    identity: [connection.identity, token.identity].filter((identity) => identity !== "").join(" and "),
    // If the token is accepted, a problem with the certificate no longer matters.
    problem: token.problem ?? (token.identity === "" ? connection.problem : undefined),
  };
}

/** A client's socket, or an HTTP/2 session's proxy of it. */
export type ClientSocket = Pick<Socket, "remoteAddress"> &
  Partial<Pick<TLSSocket, "authorized" | "authorizationError" | "getPeerCertificate">>;

/** Returns the {@link Rights} of a connection. A closed TCP connection has no address, and so no rights of loopback. */
export function rightsOfConnection(
  socket: ClientSocket,
  isUnix: boolean,
  trust: Trust,
  nowMs: number = Date.now(),
): Rights {
  const { allowsAnonymous = false, trustsLoopback = true } = trust;
  if (isUnix) return everyRight("a client of the unix socket");
  if (trustsLoopback && isLoopback(socket.remoteAddress ?? "")) return everyRight("a client on this machine");
  // This precedes the certificate: with every right, nothing is refused, so no message needs the client's name.
  if (allowsAnonymous) return everyRight("an anonymous client");
  const certificate = socket.getPeerCertificate?.();
  // The value is {} or null if the client presented no certificate.
  if (!certificate?.subject) return noRights;
  const name = firstOf(certificate.subject.CN);
  const refuse = (reason: string): Rights => {
    const issuer = firstOf(certificate.issuer?.CN);
    const message = `certificate "${name}", issued by "${issuer}", is not accepted: ${reason}`;
    return { ...noRights, problem: { code: Code.Unauthenticated, message } };
  };
  // The TLS listener has verified the certificate.
  if (socket.authorized !== true) return refuse(describeRefusal(String(socket.authorizationError)));
  // A resumed session has the certificate of the original session. The certificate is not verified again, so it may
  // have expired in the meantime.
  if (Date.parse(certificate.valid_to) <= nowMs) return refuse("it has expired");
  return rightsOfCertificate(certificate.subjectaltname, name);
}

/** Returns a clause that describes an OpenSSL error code. */
function describeRefusal(reason: string): string {
  if (reason === "CERT_HAS_EXPIRED") return "it has expired";
  if (reason === "CERT_NOT_YET_VALID") return "it is not valid yet";
  return /SELF_SIGNED|ISSUER|LEAF/.test(reason) ? "no CA of the watcher's --listen-tls-ca has signed it" : reason;
}

/** Returns the first value of a field in a certificate's subject or issuer; "" if absent. */
function firstOf(field: string | readonly string[] | undefined): string {
  return [field].flat()[0] ?? "";
}

/** Which clients over TCP need no proof of their identity. */
export interface Trust {
  /** Gives every right to all clients (`--allow-anonymous`). Default false. */
  readonly allowsAnonymous?: boolean | undefined;
  /** Gives every right to clients over loopback (`--trust-loopback`). Default true. */
  readonly trustsLoopback?: boolean | undefined;
}

/**
 * True for a loopback address, including `::ffff:127.0.0.1`, the form in which a dual-stack listener reports IPv4
 * clients.
 */
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

/**
 * Checks that the client may read the view of a node. Errors: the code of `Rights.problem` if there is one; otherwise
 * UNAUTHENTICATED if the client has no identity, and PERMISSION_DENIED if it has one.
 */
export function checkNodeRight(rights: Rights, nodeName: string): void {
  if (rights.nodes === "all" || rights.nodes.has(nodeName)) return;
  throw refusal(rights, `read the view of node "${nodeName}"`);
}

export function hasAnyRight({ nodes, hasState, hasInspection }: Rights): boolean {
  return nodes === "all" || nodes.size > 0 || hasState || hasInspection;
}

/**
 * Checks that the client has at least one right, which suffices for requests that reveal no object. Errors: as for
 * {@link checkNodeRight}.
 */
export function checkAnyRight(rights: Rights): void {
  if (!hasAnyRight(rights)) throw refusal(rights, "ask how new the state is");
}

/** Checks that the client may read the state of the whole cluster. Errors: as for {@link checkNodeRight}. */
export function checkStateRight(rights: Rights): void {
  if (!rights.hasState) throw refusal(rights, "read the state of the whole cluster");
}

/**
 * Checks that the client may inspect the node `nodeName`, or the whole cluster if that is undefined or "". Errors: as
 * for {@link checkNodeRight}.
 */
export function checkInspectionRight(rights: Rights, nodeName: string | undefined): void {
  if (rights.hasInspection) return;
  if (nodeName === undefined || nodeName === "") throw refusal(rights, "inspect the whole cluster");
  if (rights.nodes !== "all" && !rights.nodes.has(nodeName)) throw refusal(rights, `inspect node "${nodeName}"`);
}

function refusal({ identity, problem }: Rights, what: string): ConnectError {
  if (problem !== undefined) {
    const { code, message } = problem;
    return new ConnectError(`${message}; without a valid certificate or token, this client may not ${what}`, code);
  }
  if (identity !== "") return new ConnectError(`${identity} may not ${what}`, Code.PermissionDenied);
  return new ConnectError(
    `a client without a certificate or token may not ${what}; the watcher's --allow-anonymous would permit it`,
    Code.Unauthenticated,
  );
}
