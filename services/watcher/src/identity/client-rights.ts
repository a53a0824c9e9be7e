import type { Http2Session, ServerHttp2Session } from "node:http2";
import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { everyRight, noRights, type Rights } from "./rights.ts";

/** The rights of the open connections of a watcher, computed once for each connection and not for each call. */
export class ClientRights {
  readonly #trust: Trust;
  readonly #bySession = new WeakMap<Http2Session, Rights>();

  constructor(trust: Trust) {
    this.#trust = trust;
  }

  /** Adds a connection. TLS is complete. */
  add(session: ServerHttp2Session, isUnix: boolean): void {
    this.#bySession.set(session, rightsOfConnection(session.socket, isUnix, this.#trust));
  }

  /** Returns no rights for a connection that closed while the call arrived. */
  of(session: Http2Session | undefined): Rights {
    return (session && this.#bySession.get(session)) ?? noRights;
  }
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
