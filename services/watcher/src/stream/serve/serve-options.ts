import type { Log } from "@kpng/process/log.ts";
import type { ReadTls, ServerTlsFiles } from "@kpng/process/tls-files.ts";
import type { Registry } from "prom-client";
import type { ConnectionLimits } from "../../connection/connection-limits.ts";
import type { Trust } from "../../identity/client-rights.ts";
import type { TokenChecker } from "../../identity/token-checker.ts";
import type { PageHandler } from "./request-handler.ts";
import type { RoutesOptions } from "./routes.ts";

/**
 * Options of `serveTask`. They are in a file of their own because its parts, `makeServer` and `makeCallHandler`, take
 * them, too.
 */
export interface ServeOptions extends RoutesOptions, ConnectionLimits, Trust {
  /** Listen addresses; see parseListenAddress. */
  readonly listen: readonly string[];
  readonly tls?: ReadTls<ServerTlsFiles> | undefined;
  /** Checks the tokens of calls over TLS, which then need no client certificate. Default: tokens are ignored. */
  readonly tokens?: TokenChecker | undefined;
  /** Interval between two reads of the TLS files, in milliseconds. Default 10 000. */
  readonly reloadMs?: number | undefined;
  /** Maximum number of streams of each kind that wait for their first batch; 0 for no limit. Default: by the memory. */
  readonly maxWaiting?: number | undefined;
  /** Registry for the metrics of connections and waiting streams. Default none. */
  readonly registry?: Registry | undefined;
  /** Web pages on the same port. Default none. */
  readonly page?: PageHandler | undefined;
  readonly log: Log;
  /** Called once, when all addresses are open, with addresses that clients can dial (port 0 is resolved). */
  readonly onListening?: ((addresses: readonly string[]) => void) | undefined;
}
