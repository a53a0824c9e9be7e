/**
 * Types for the part of the package ws that we use. The Kubernetes client library brings the package along, but without
 * its types.
 */
declare module "ws" {
  import type { EventEmitter } from "node:events";
  import type { ClientRequest, IncomingMessage } from "node:http";
  import type { RequestOptions } from "node:https";
  import type { Duplex } from "node:stream";

  interface WebSocketEvents {
    open: [];
    message: [data: Buffer];
    close: [];
    error: [error: Error];
    "unexpected-response": [request: ClientRequest, response: IncomingMessage];
  }

  export class WebSocket extends EventEmitter<WebSocketEvents> {
    constructor(url: string, protocols: readonly string[], options: RequestOptions);
    send(data: Buffer, done?: (error?: Error | null) => void): void;
    close(): void;
    terminate(): void;
    pause(): void;
    resume(): void;
  }

  /** For tests. */
  export class WebSocketServer {
    constructor(options: { readonly noServer: true; readonly handleProtocols: () => string });
    handleUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer, done: (socket: WebSocket) => void): void;
  }
}
