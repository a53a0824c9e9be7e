import { named } from "../../scenario/build.ts";
import type { State } from "../../scenario/manifest.ts";
import { n1 } from "../../scenario/packet.ts";
import type { TwoNodes } from "../laboratory/two-nodes.ts";

/** Longest time from a state to its rules, in milliseconds; a guest is slower than its machine. */
const patienceMs = Number(process.env.KPNG_PATIENCE_MS ?? 30_000);

/**
 * Detects with packets when a proxy has installed the rules of a state.
 *
 * Each state gets a marker: a Service with a new port and a different endpoint than the last one. A proxy reads
 * Services and EndpointSlices in the order of their changes. So when the marker's endpoint answers on the marker's
 * port, all earlier changes are installed, too. This needs no rules, logs or metrics and works for every proxy.
 */
export class Marker {
  readonly #world: TwoNodes;
  readonly #firstPort: number;
  readonly #labels: Readonly<Record<string, string>>;
  readonly #lastingPort: number | undefined;
  #number = 0;

  /**
   * Two proxies that run at the same time need markers with different ports. `labels` are the labels of the Services
   * that the proxy serves. `hasSockets`: the proxy serves sockets, too, and not in the transaction of its rules. Then a
   * second port leads to the same endpoint in every state: sockets know it from the state before, so their answer tells
   * when they have the new one.
   */
  constructor(
    world: TwoNodes,
    firstPort = 20_000,
    labels: Readonly<Record<string, string>> = {},
    { hasSockets = false } = {},
  ) {
    this.#world = world;
    this.#lastingPort = hasSockets ? firstPort - 1 : undefined;
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
    const ports = this.#ports.map((port) => ({ port, protocols: ["tcp"] as const }));
    return named(this.#name, { number: 255, ports, labels: this.#labels }, [this.#host]);
  }

  get #ports(): readonly number[] {
    return [this.#port, ...(this.#lastingPort === undefined ? [] : [this.#lastingPort])];
  }

  /** Sockets get the Services of a state one after the other: the marker is the last. */
  get #name(): string {
    return this.#lastingPort === undefined ? "marker" : "zz-marker";
  }

  get #port(): number {
    return this.#firstPort + this.#number;
  }

  get #host(): "a" | "b" {
    return this.#number % 2 === 0 ? "a" : "b";
  }

  /** Waits until the marker answers. Errors: timeout, with the output of `log`. */
  async wait(log: () => string, timeoutMs = patienceMs): Promise<void> {
    const addresses = this.state.services[0]?.spec.clusterIPs ?? [];
    await Promise.all(addresses.map((address) => this.#served(address, log, timeoutMs)));
  }

  async #served(address: string, log: () => string, timeoutMs: number): Promise<void> {
    const agent = this.#world.agentOf(n1);
    for (const port of this.#ports) {
      if (await agent.send({ kind: "await", address, port, name: this.#host, timeoutMs })) continue;
      throw new Error(`not synced within ${timeoutMs} ms: no answer from ${address} port ${port}\n${log()}`);
    }
  }
}
