/**
 * Remembers which endpoint each client of a service port uses (session affinity ClientIP). `Balancer` asks it for each
 * new connection, before it chooses. Separate from it, because it has a bound and time limits, and knows no plan.
 *
 * *Bound:* `maxClients`; beyond it the client that was away for the longest time is forgotten.
 */
export class ClientAffinity<Endpoint> {
  /** In the order of last use, oldest first. */
  readonly #clients = new Map<string, { readonly endpoint: Endpoint; readonly usedMs: number }>();
  readonly #maxClients: number;

  constructor(maxClients: number) {
    this.#maxClients = maxClients;
  }

  /** Returns the endpoint of a client whose last connection is at most `timeoutMs` old. */
  endpointOf(client: string, timeoutMs: number, nowMs: number): Endpoint | undefined {
    const known = this.#clients.get(client);
    return known !== undefined && nowMs - known.usedMs <= timeoutMs ? known.endpoint : undefined;
  }

  remember(client: string, endpoint: Endpoint, timeoutMs: number, nowMs: number): void {
    this.#clients.delete(client);
    for (const [oldest, { usedMs }] of this.#clients) {
      if (nowMs - usedMs <= timeoutMs && this.#clients.size < this.#maxClients) break;
      this.#clients.delete(oldest);
    }
    this.#clients.set(client, { endpoint, usedMs: nowMs });
  }

  /** Forgets a client, because its endpoint does not accept connections. */
  forget(client: string): void {
    this.#clients.delete(client);
  }

  clear(): void {
    this.#clients.clear();
  }
}
