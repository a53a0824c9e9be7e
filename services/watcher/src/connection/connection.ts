import type { ServerHttp2Session } from "node:http2";
import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";

/**
 * A connection of a client, as `Connections` manages it. Separate from that class, so that only this file distinguishes
 * connections over HTTP/2 from those over HTTP/1.1.
 */
export interface Connection {
  /** Aborts when the client is asked to reconnect. Waiting calls end; a batch that is being written is completed. */
  readonly leaving: AbortController;
  readonly calls: Set<Call>;
  /** True if the client presented a certificate, whose CA may be replaced. */
  readonly hasCertificate: boolean;
  /** Accepts no further calls, and closes the connection when the current calls have ended. */
  close(): void;
  destroy(): void;
}

/** A call in progress. */
export interface Call {
  /** True once the client has sent a request. A connection without such a call counts as idle. */
  readonly hasRequest: boolean;
  /** The response, or the HTTP/2 stream that carries it. */
  readonly output: CallOutput;
  /** Ends the call without sending the rest of its output. */
  end(): void;
}

/** The part of a writable stream that shows whether the client reads. */
export interface CallOutput {
  readonly writableNeedDrain: boolean;
  once(event: "drain", listener: () => void): unknown;
}

/** Makes the connection of an HTTP/2 session, which carries any number of calls. */
export function http2Connection(session: ServerHttp2Session): Connection {
  return {
    leaving: new AbortController(),
    calls: new Set(),
    get hasCertificate() {
      // The socket of a destroyed session cannot be used.
      return !session.destroyed && presentedCertificate(session.socket);
    },
    // Sends GOAWAY.
    close: () => session.close(),
    destroy: () => session.destroy(),
  };
}

/**
 * Makes the connection of a socket over HTTP/1.1, which carries one call at a time. `close` does nothing during a call;
 * `Connections` calls it again when a call of a leaving connection ends.
 */
export function http1Connection(socket: Socket): Connection {
  const calls = new Set<Call>();
  return {
    leaving: new AbortController(),
    calls,
    get hasCertificate() {
      return presentedCertificate(socket);
    },
    close: () => {
      if (calls.size === 0) socket.destroySoon();
    },
    destroy: () => socket.destroy(),
  };
}

function presentedCertificate(socket: Socket & Partial<Pick<TLSSocket, "getPeerCertificate">>): boolean {
  // {} or null without a certificate.
  return socket.getPeerCertificate?.()?.subject !== undefined;
}
