/**
 * Patterns of error messages, each with advice. Most messages come from OpenSSL, Node.js and the Connect library; for
 * our own messages, a comment names the source file. The first matching pattern counts, so patterns with a prefix
 * precede general ones.
 */
const hints: readonly (readonly [RegExp, string])[] = [
  [/larger than configured readMaxBytes/, "raise --max-msg-size"],
  [/wrong version number|packet length too long/, "no TLS is spoken there: use http:// or host:port without TLS files"],
  [
    /error code CANCEL|ECONNRESET|socket hang up|other side closed/,
    "if the watcher expects TLS, use https:// with --tls-ca; a firewall or proxy can be the cause too",
  ],
  // The name of a health part; kind-report.ts in the package of sources.
  [
    /source\/kube\/.*(?:self-signed certificate|unable to (?:get local|verify).*certificate)/,
    "the API server's certificate comes from an unknown CA: certificate-authority in the kubeconfig names it",
  ],
  [
    /self-signed certificate|unable to (get local|verify).*certificate|SELF_SIGNED/,
    "the certificate comes from an unknown CA: name the watcher's with --tls-ca",
  ],
  [
    /certificate required|bad certificate|unknown ca/,
    "the watcher wants a client certificate that it knows: --tls-crt and --tls-key",
  ],
  [/does not match certificate's altnames/, "use a name or address that the watcher's certificate contains"],
  [
    /source\/kube\/.*ECONNREFUSED/,
    "nothing listens there: is it the address of the API server (--server, or the server of the kubeconfig)?",
  ],
  // token-checker.ts in the watcher.
  [/has no right at this watcher/, "the watcher's --inspection-accounts names the accounts that may ask it"],
  // Queries from kpng; client.ts in the CLI.
  [
    /request failed: .*ECONNREFUSED/,
    "nothing listens there: is a watcher running, and is --api its address? --context NAME asks a cluster instead",
  ],
  [/ECONNREFUSED/, "nothing listens there: is a watcher running, and is --api its address?"],
  [/connect ENOENT/, "there is no such socket: is the process running, and is it the path of its --listen?"],
  [/connect EACCES/, "the socket is for its owner and group: run as one of them"],
  [/ENOTFOUND|EAI_AGAIN/, "the name cannot be resolved from this machine"],
  [/Protocol error|HTTP 404/, "another service listens there: a watcher's default port is 12090"],
  [/PERMISSION_DENIED|permission_denied/, "docs/guides/security.md lists the rights that a request needs"],
  // rights.ts in the watcher.
  [/certificate ".*, is not accepted: it has expired/, "renew the certificate of --tls-crt"],
  [/certificate ".*, is not accepted/, "is --tls-crt of the CA that the watcher has in --listen-tls-ca?"],
];

/**
 * Returns advice about a failed connection or request, chosen by its error message; undefined if there is none. The
 * advice is for the person who typed the command, and for a backend's log.
 */
export function failureHint(message: string): string | undefined {
  return hints.find(([pattern]) => pattern.test(message))?.[1];
}
