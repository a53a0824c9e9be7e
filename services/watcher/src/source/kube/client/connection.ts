/** The head of an answer, and its body as it comes. */
export interface KubeResponse {
  readonly status: number;
  readonly body: AsyncIterable<Buffer>;
}

/** What the lists and watches need of a connection to an API server. */
export interface KubeConnection {
  /** For logs, e.g. "https://10.96.0.1:443". */
  readonly server: string;
  /**
   * Sends a GET and resolves with the head of the answer, whatever its status. `path` may carry a query. An aborted
   * signal ends the request and its body.
   *
   * Errors: Node.js' own where the connection cannot be made or breaks, also from `body`.
   */
  get(path: string, signal: AbortSignal): Promise<KubeResponse>;
  /** Closes the idle connections. */
  close(): void;
}
