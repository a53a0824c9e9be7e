/**
 * Status and body of a response of the API server. The body is read while it arrives. The source `kube` and
 * `kubeAuthority` send their requests through the types of this file only, so tests can replace the API server.
 */
export interface KubeResponse {
  readonly status: number;
  readonly body: AsyncIterable<Buffer>;
}

/** Connection to an API server. `connectKube` makes it; separate from it, because it imports the Kubernetes client. */
export interface KubeConnection {
  /** URL for logs, e.g. "https://10.96.0.1:443". */
  readonly server: string;
  /**
   * Sends a GET and resolves with the response once its headers have arrived, whatever the status. `path` may include a
   * query. Aborting `signal` ends the request and its body.
   *
   * Errors: those of Node.js if the connection fails, also while `body` is read.
   */
  get(path: string, signal: AbortSignal): Promise<KubeResponse>;
  /** Sends a POST with a body of JSON; otherwise like {@link get}. For reviews, which create no object. */
  post(path: string, body: unknown, signal: AbortSignal): Promise<KubeResponse>;
  /** Closes the idle connections. */
  close(): void;
}
