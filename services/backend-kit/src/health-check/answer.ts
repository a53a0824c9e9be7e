/** What a load balancer is told of a Service on this node. */
export interface CheckState {
  readonly namespace: string;
  readonly name: string;
  readonly localEndpoints: number;
  /** False while this node's rules are behind. */
  readonly isProxyHealthy: boolean;
}

export interface CheckAnswer {
  readonly status: 200 | 503;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/**
 * Returns kube-proxy's answer, byte for byte: 200 if there are endpoints and the proxy is healthy, else 503.
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
