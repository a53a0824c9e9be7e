/** State of a Service on this node that a health check reports. */
export interface CheckState {
  readonly namespace: string;
  readonly name: string;
  /** Number of ready endpoints on this node. */
  readonly localEndpoints: number;
  /** False while the rules of this node are out of date. */
  readonly isProxyHealthy: boolean;
}

/** HTTP response to a health check. */
export interface CheckAnswer {
  readonly status: 200 | 503;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/**
 * Returns the response to a load balancer's health check of a Service on this node, byte for byte that of kube-proxy:
 * 200 if the node has ready endpoints and the proxy is healthy, otherwise 503. Called by the server in
 * `check-server.ts`. Separate from it, because it copies kube-proxy and knows no sockets.
 *
 * *Source:* kube-proxy `healthcheck/service_health.go`, ServeHTTP. Pure.
 */
export function answerCheck({ namespace, name, localEndpoints, isProxyHealthy }: CheckState): CheckAnswer {
  const body = { service: { namespace, name }, localEndpoints, serviceProxyHealthy: isProxyHealthy };
  return {
    status: localEndpoints !== 0 && isProxyHealthy ? 200 : 503,
    headers: {
      "Content-Type": "application/json",
      "X-Content-Type-Options": "nosniff",
      "X-Load-Balancing-Endpoint-Weight": String(localEndpoints),
    },
    body: JSON.stringify(body, undefined, "\t"),
  };
}
