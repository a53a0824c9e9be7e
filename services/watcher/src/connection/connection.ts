import type { IncomingMessage } from "node:http";
import type { ServerHttp2Session } from "node:http2";
import type { Socket } from "node:net";

/** One connection to a client, of either version of HTTP. */
export interface Connection {
  /** Aborts when the client is asked to go elsewhere: a call that waits ends, one that is being written is written first. */
  readonly leaving: AbortController;
  /** How many calls are going on. */
  callCount: number;
  /** True while a call is going on that the client has asked for completely. */
  readonly isBusy: boolean;
  /** Takes no more calls, and ends when those that are going on have ended. */
  close(): void;
  destroy(): void;
}

export function http2Connection(session: ServerHttp2Session): Connection {
  return {
    leaving: new AbortController(),
    callCount: 0,
    get isBusy() {
      return this.callCount > 0;
    },
    // Says GOAWAY.
    close: () => session.close(),
    destroy: () => session.destroy(),
  };
}

/** A connection that carries one call at a time. */
export class Http1Connection implements Connection {
  readonly leaving = new AbortController();
  callCount = 0;
  /** The call that is going on, or the last one. */
  request: IncomingMessage | undefined;
  readonly #socket: Socket;

  constructor(socket: Socket) {
    this.#socket = socket;
  }

  get isBusy(): boolean {
    return this.callCount > 0 && this.request?.complete === true;
  }

  close(): void {
    if (this.callCount === 0) this.#socket.destroySoon();
  }

  destroy(): void {
    this.#socket.destroy();
  }
}
