import type { IncomingHttpHeaders } from "node:http";

/**
 * Replaces the host that a client names in its request, for a server whose answers do not depend on it.
 *
 * The Connect library makes a URL of the host, and throws if that is impossible: gRPC's C core, which most languages
 * use, names the socket `/run/plan.sock` as `run%2Fplan.sock`.
 */
export function forgetHost({ headers }: { readonly headers: IncomingHttpHeaders }): void {
  headers.host = "localhost";
  headers[":authority"] = "localhost";
}
