import type { ServerHttp2Session } from "node:http2";
import type { Socket } from "node:net";
import { rightsOfConnection, type Trust } from "./identify.ts";
import { noRights, type Rights } from "./rights.ts";

/**
 * The rights of the open connections of a watcher. `makeServer` adds each connection; the handler of `makeCallHandler`
 * asks for each call. Separate, so that the rights are computed once for each connection and not for each call.
 */
export class ClientRights {
  readonly #trust: Trust;
  readonly #byCarrier = new WeakMap<object, Rights>();

  constructor(trust: Trust) {
    this.#trust = trust;
  }

  /** Adds a connection: the session over HTTP/2, the socket over HTTP/1.1. TLS is complete. */
  add(carrier: ServerHttp2Session | Socket, isUnix: boolean): void {
    const socket = "socket" in carrier ? carrier.socket : carrier;
    this.#byCarrier.set(carrier, rightsOfConnection(socket, isUnix, this.#trust));
  }

  /** Returns no rights for a connection that closed while the call arrived. */
  of(carrier: object | undefined): Rights {
    return (carrier && this.#byCarrier.get(carrier)) ?? noRights;
  }
}
