import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { rightsOfCertificate } from "./certificate-rights.ts";
import { everyRight, noRights, type Rights } from "./rights.ts";

/** A socket of a client, or the view of it that an HTTP/2 session gives. */
export type ClientSocket = Pick<Socket, "remoteAddress"> &
  Partial<Pick<TLSSocket, "authorized" | "getPeerCertificate">>;

/**
 * Returns the rights that a client has by its connection: every right on a unix socket and over loopback, those of its
 * certificate over TLS, and otherwise none. A TCP connection that is closed already has no address, and so no rights.
 *
 * `ClientRights` calls it once for each connection. Separate from that class, which only remembers the result.
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
