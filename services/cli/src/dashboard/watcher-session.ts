import { type ClientHttp2Session, type ClientHttp2Stream, connect, type OutgoingHttpHeaders } from "node:http2";
import {
  baseUrlOf,
  checkSecrecy,
  type DialOptions,
  openSocket,
  parseApiAddress,
} from "@kpng/process/connection/dial.ts";

/**
 * HTTP/2 connection to a watcher, with the credentials of the person who runs `kpng dashboard`. It is opened when it is
 * first needed, and again after it was closed.
 *
 * `makeDashboard` creates it, and `serveDashboard` sends the requests of a browser over it. Separate from `dial`, which
 * speaks only gRPC.
 */
export class WatcherSession {
  readonly #options: DialOptions;
  readonly #address: ReturnType<typeof parseApiAddress>;
  readonly #silenceMs: number;
  #session: ClientHttp2Session | undefined;

  /**
   * `silenceMs` is the time without any data after which the connection is closed, in milliseconds. Default 30 000: an
   * open page receives data every second.
   *
   * Errors: BAD_OPTION, also for a token over plain TCP.
   */
  constructor(options: DialOptions, silenceMs = 30_000) {
    this.#options = options;
    this.#silenceMs = silenceMs;
    this.#address = parseApiAddress(options.api, options.tls !== undefined);
    if (options.token !== undefined) checkSecrecy(this.#address, options.api);
  }

  /** Sends a GET request. Errors: TLS_FILES or TOKEN_FILE if a file cannot be read any more. */
  get(path: string, headers: OutgoingHttpHeaders): ClientHttp2Stream {
    const { token } = this.#options;
    const authorization = token === undefined ? {} : { authorization: `Bearer ${token()}` };
    return this.#open().request({ ":path": path, ...headers, ...authorization });
  }

  close(): void {
    this.#session?.destroy();
  }

  #open(): ClientHttp2Session {
    const open = this.#session;
    if (open !== undefined && !open.closed && !open.destroyed) return open;
    const { tls } = this.#options;
    const session = connect(baseUrlOf(this.#address), { createConnection: () => openSocket(this.#address, tls) });
    // Each request reports the error, too.
    session.on("error", () => undefined);
    // The watcher asks to reconnect: later requests take another connection, and open ones end by themselves.
    session.on("goaway", () => session.close());
    const silenceMs = this.#silenceMs;
    session.setTimeout(silenceMs, () => session.destroy(new Error(`no data for ${silenceMs / 1_000} s`)));
    this.#session = session;
    return session;
  }
}
