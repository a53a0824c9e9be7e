import type { ServerHttp2Session } from "node:http2";
import type { Socket } from "node:net";

/**
 * A connection of a client, over HTTP/2 or HTTP/1.1, as `Connections` manages it. It hides which protocol the client
 * speaks.
 */
export interface Connection {
  /**
   * Aborts when the client is asked to reconnect. Waiting calls end; a batch that is being written is completed first.
   */
  readonly leaving: AbortController;
  readonly calls: Set<Call>;
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

/** A connection that carries any number of calls. `Connections` calls it for each session. */
export function http2Connection(session: ServerHttp2Session): Connection {
  return {
    leaving: new AbortController(),
    calls: new Set(),
    // Sends GOAWAY.
    close: () => session.close(),
    destroy: () => session.destroy(),
  };
}

/** A connection that carries one call at a time. `Connections` calls it for each socket. */
export function http1Connection(socket: Socket): Connection {
  const calls = new Set<Call>();
  return {
    leaving: new AbortController(),
    calls,
    close: () => {
      if (calls.size === 0) socket.destroySoon();
    },
    destroy: () => socket.destroy(),
  };
}
