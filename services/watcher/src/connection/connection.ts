import type { ServerHttp2Session } from "node:http2";
import type { Socket } from "node:net";

/** A call that goes on. */
export interface Call {
  /** True once the client has asked for something: until then it may be somebody who only wants to be a burden. */
  readonly isAsked: boolean;
}

/** One connection to a client, of either version of HTTP. */
export interface Connection {
  /** Aborts when the client is asked to go elsewhere: a call that waits ends, one that is being written is written first. */
  readonly leaving: AbortController;
  readonly calls: Set<Call>;
  /** Takes no more calls, and ends when those that are going on have ended. */
  close(): void;
  destroy(): void;
}

export function http2Connection(session: ServerHttp2Session): Connection {
  return {
    leaving: new AbortController(),
    calls: new Set(),
    // Says GOAWAY.
    close: () => session.close(),
    destroy: () => session.destroy(),
  };
}

/** A connection that carries one call at a time. */
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
