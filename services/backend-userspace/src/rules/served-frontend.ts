import { addressAndPort } from "@kpng/model/address.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { reasonOf } from "@kpng/process/log.ts";
import type { Frontend } from "@kpng/service-plan/service-plan.ts";
import type { Balancer } from "../balance/balancer.ts";
import type { EntryFrontend, EntryState, Place, PortList } from "../entry/entry.ts";
import { Gate, type Verdict, verdictOf } from "../listen/gate.ts";
import type { Senders } from "../listen/senders.ts";
import { type ServedPort, TcpListener } from "../listen/tcp-listener.ts";
import { UdpListener } from "../listen/udp-listener.ts";
import type { UserspaceRuntime } from "./userspace-runtime.ts";

/** The Service that a frontend belongs to. */
export interface FrontendOwner {
  readonly service: ServiceKey;
  readonly name: string;
  readonly isFirst: boolean;
  readonly balancer: Balancer;
}

interface OpenListener {
  readonly place: { readonly address: string; readonly port: number };
  close(): Promise<void>;
}

/**
 * A frontend with its listeners. `FrontendTable` keeps one for each frontend of the plan, and `UserspaceRuleSet` opens
 * and closes its listeners. Separate from both, because it lasts as long as its listeners: it may pass to another
 * Service, and it stays until the last connection of a removed frontend has ended.
 */
export class ServedFrontend implements EntryFrontend, ServedPort {
  readonly id: string;
  readonly gate: Gate;
  readonly #runtime: UserspaceRuntime;
  #owner: FrontendOwner;
  #listeners: readonly OpenListener[] = [];
  /** The state that the entry put into effect last, as JSON. */
  #published = "";
  /** Listeners that accept nothing any more, but whose connections are open. */
  #closing = 0;
  /** Whether the current plan has it. */
  isWanted = true;
  /** Why it is not open at all places; undefined if it is. */
  failure: string | undefined;

  constructor(id: string, frontend: Frontend, owner: FrontendOwner, senders: Senders, runtime: UserspaceRuntime) {
    this.id = id;
    this.gate = new Gate(frontend, senders);
    this.#owner = owner;
    this.#runtime = runtime;
  }

  get service(): ServiceKey {
    return this.#owner.service;
  }

  get name(): string {
    return this.#owner.name;
  }

  get isFirst(): boolean {
    return this.#owner.isFirst;
  }

  get balancer(): Balancer {
    return this.#owner.balancer;
  }

  get frontend(): Frontend {
    return this.gate.frontend;
  }

  get verdict(): Verdict {
    return verdictOf(this.frontend);
  }

  get socketCount(): number {
    return this.#listeners.length;
  }

  /** Where it accepts connections or datagrams. */
  get listensAt(): readonly { readonly address: string; readonly port: number }[] {
    return this.#listeners.map(({ place }) => place);
  }

  /** Whether connections of closed listeners are still open. */
  get isDraining(): boolean {
    return this.#closing > 0;
  }

  /** State for the entry. */
  get state(): EntryState {
    if (!this.isWanted) return { kind: "none" };
    const { verdict } = this;
    if (verdict !== "serve") return { kind: verdict };
    if (this.#listeners.length === 0) return { kind: "none" };
    return { kind: "open", places: this.listensAt };
  }

  /** Whether nothing has to be opened, closed or published. */
  isSettledAt(places: readonly Place[]): boolean {
    const isOpen = ({ address, ports }: Place): boolean =>
      this.#listeners.some(({ place }) => place.address === address && ports.includes(place.port));
    const isSame = this.#listeners.length === places.length && places.every(isOpen);
    return isSame && this.isWanted && this.#published === JSON.stringify(this.state);
  }

  /** Notes that the entry has put the current state into effect. */
  setPublished(): void {
    this.#published = JSON.stringify(this.state);
  }

  /** Takes a new plan, perhaps of another Service. Open connections go on. */
  update(frontend: Frontend, owner: FrontendOwner): void {
    this.gate.update(frontend);
    this.#owner = owner;
    this.isWanted = true;
  }

  /**
   * Opens listeners at places that have none. Listeners elsewhere stay until {@link closeExcept}. A place that cannot
   * be opened is named in {@link failure}. Returns whether a listener was opened.
   */
  async openAt(places: readonly Place[]): Promise<boolean> {
    const failures: string[] = [];
    let isChanged = false;
    for (const { address, ports } of places) {
      if (this.#listeners.some(({ place }) => place.address === address && ports.includes(place.port))) continue;
      try {
        this.#listeners = [...this.#listeners, await this.#openFirst(address, ports)];
        isChanged = true;
      } catch (error) {
        const [first = 0] = ports;
        failures.push(`${addressAndPort(address, first)}: ${reasonOf(error)}`);
      }
    }
    this.failure = failures.length === 0 ? undefined : failures.join("; ");
    return isChanged;
  }

  /** Closes the listeners at other places. Calls `onDrained` when the last connection of them all has ended. */
  closeExcept(places: readonly Place[], onDrained: () => void): boolean {
    const isKept = ({ place }: OpenListener): boolean =>
      places.some(({ address, ports }) => place.address === address && ports.includes(place.port));
    const closed = this.#listeners.filter((listener) => !isKept(listener));
    this.#listeners = this.#listeners.filter(isKept);
    this.#closing += closed.length;
    for (const listener of closed) {
      void listener.close().then(() => {
        if (--this.#closing === 0) onDrained();
      });
    }
    return closed.length > 0;
  }

  /** Describes it in one line. *Shape:* `TCP 10.96.0.1:80 default/web serve at 192.0.2.1:20173`. */
  describe(): string {
    const { address, protocol, port } = this.frontend;
    const at = this.#listeners.map(({ place }) => addressAndPort(place.address, place.port)).toSorted();
    const served = at.length === 0 ? this.verdict : `serve at ${at.join(" ")}`;
    return `${protocol} ${addressAndPort(address ?? "*", port)} ${this.name} ${served}`;
  }

  async #openFirst(address: string, ports: PortList): Promise<OpenListener> {
    let reason = new Error("all ports to listen at are used by other frontends");
    for (const port of ports) {
      if (this.#runtime.isListening(this.frontend.protocol, { address, port })) continue;
      try {
        return await this.#open({ address, port });
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "EADDRINUSE") throw error;
        reason = error as Error;
      }
    }
    throw reason;
  }

  async #open(place: OpenListener["place"]): Promise<OpenListener> {
    const { relay, udp } = this.#runtime;
    const { protocol } = this.frontend;
    // Before the first wait: no other frontend may take the place meanwhile.
    this.#runtime.setListening(protocol, place, true);
    let listener: TcpListener | UdpListener;
    try {
      listener =
        protocol === "TCP" ? await TcpListener.open(this, place, relay) : await UdpListener.open(this, place, udp);
    } catch (error) {
      this.#runtime.setListening(protocol, place, false);
      throw error;
    }
    return {
      place,
      close: () => {
        this.#runtime.setListening(protocol, place, false);
        return listener.close();
      },
    };
  }
}
