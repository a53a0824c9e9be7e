import { named, type State } from "../scenario/build.ts";
import { addressOf, clusterIP, n1 } from "../scenario/packet.ts";
import type { TwoNodes } from "./two-nodes.ts";

/**
 * Detects by packets when a proxy has installed the rules for a state.
 *
 * Each state gets a marker: a Service with a new port and a different endpoint than the last one. A proxy reads
 * Services and EndpointSlices in the order of their changes. So when the marker's endpoint answers on the marker's
 * port, all earlier changes are installed, too. This needs no rules, logs or metrics.
 *
 * A proxy that changes Services one after another may serve the marker before the rest of its state; in that case, a
 * second marker, from the next sync, shows when the state is complete. The name of the marker is the last, so that this
 * is rare.
 */
export class Marker {
  readonly #world: TwoNodes;
  readonly #firstPort: number;
  readonly #labels: Readonly<Record<string, string>>;
  #number = 0;

  /**
   * Two proxies that run at the same time need markers with different ports. `labels` are the labels of the Services
   * that the proxy serves.
   */
  constructor(world: TwoNodes, firstPort = 20_000, labels: Readonly<Record<string, string>> = {}) {
    this.#world = world;
    this.#firstPort = firstPort;
    this.#labels = labels;
  }

  /** Returns the state of the next marker, which must be applied after the marked changes or together with them. */
  next(): State {
    this.#number += 1;
    return this.state;
  }

  /** Service and EndpointSlices of the current marker. */
  get state(): State {
    // TCP, because a changed UDP Service makes proxies search for stale flows, which the marker must not cause.
    const ports = [{ port: this.#firstPort + this.#number, protocols: ["tcp"] as const }];
    return named("zz-marker", { number: 255, ports, labels: this.#labels }, [this.#host]);
  }

  get #host(): "a" | "b" {
    return this.#number % 2 === 0 ? "a" : "b";
  }

  /** Waits until the marker answers. Errors: timeout, with the output of `log`. */
  async wait(log: () => string, timeoutMs: number): Promise<void> {
    const { state } = this;
    const expected = { port: this.#firstPort + this.#number, name: this.#host, timeoutMs };
    const served = async (address: string): Promise<void> => {
      if (await this.#world.agentOf(n1).call("awaitName", { address, ...expected })) return;
      const what = `no answer from the test's own Service, ${address} port ${expected.port}`;
      throw new Error(`not synced within ${timeoutMs} ms: ${what}\n${log()}`);
    };
    const frontend = clusterIP("zz-marker");
    await Promise.all(this.#world.families.map((family) => served(addressOf(state, frontend, family))));
  }
}
