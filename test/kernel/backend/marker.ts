import { named } from "../../scenario/build.ts";
import type { State } from "../../scenario/manifest.ts";
import { n1 } from "../../scenario/packet.ts";
import type { TwoNodes } from "../laboratory/two-nodes.ts";

/**
 * Tells by packets when a proxy has put a state into the kernel.
 *
 * Each state gets a Service of its own port and of another endpoint than the last. A proxy reads Services and
 * EndpointSlices each in the order of their changes, so once the marker's port is served by the marker's endpoint, all
 * that came before it is in the kernel too: without a look at rules, logs or metrics, hence the same for every proxy.
 */
export class Marker {
  readonly #world: TwoNodes;
  readonly #firstPort: number;
  readonly #labels: Readonly<Record<string, string>>;
  #number = 0;

  /**
   * Where two proxies run at a time, each has ports of its own: what one serves says nothing of the other. `labels` are
   * those of the Services that the proxy serves.
   */
  constructor(world: TwoNodes, firstPort = 20_000, labels: Readonly<Record<string, string>> = {}) {
    this.#world = world;
    this.#firstPort = firstPort;
    this.#labels = labels;
  }

  /** Moves on to the next marker. It must be applied after what it marks, or together with it. */
  next(): State {
    this.#number += 1;
    return this.state;
  }

  /** The present marker's Service and EndpointSlices. */
  get state(): State {
    // TCP, because a change of a UDP Service makes proxies look for stale flows: the marker must not be the reason.
    const ports = [{ port: this.#port, protocols: ["tcp"] as const }];
    return named("marker", { number: 255, ports, labels: this.#labels }, [this.#host]);
  }

  get #port(): number {
    return this.#firstPort + this.#number;
  }

  get #host(): "a" | "b" {
    return this.#number % 2 === 0 ? "a" : "b";
  }

  /** Errors: the marker is not served in time, with what `log` says then. */
  async wait(log: () => string, timeoutMs = 20_000): Promise<void> {
    const [service] = this.state.services;
    const agent = this.#world.agentOf(n1);
    const awaited = (service?.spec.clusterIPs ?? []).map(async (address) => {
      const port = this.#port;
      const isServed = await agent.send({ kind: "await", address, port, name: this.#host, timeoutMs });
      if (!isServed)
        throw new Error(`not synced within ${timeoutMs} ms: nobody answers ${address} port ${port}\n${log()}`);
    });
    await Promise.all(awaited);
  }
}
