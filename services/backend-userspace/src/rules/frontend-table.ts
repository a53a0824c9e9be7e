import type { FamilyPlan } from "@kpng/backend-kit/proxy/rule-set.ts";
import { addressAndPort } from "@kpng/model/address.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { reasonOf } from "@kpng/process/log.ts";
import { answeringEndpoints } from "@kpng/service-plan/plan-service.ts";
import type { EndpointAddress, Frontend, ServicePortPlan } from "@kpng/service-plan/service-plan.ts";
import { type BalancedEndpoint, Balancer } from "../balance/balancer.ts";
import type { EntryFrontend, EntryState, Place } from "../entry/entry.ts";
import { type Senders, type ServedPort, TcpListener, type Verdict, verdictOf } from "../listen/tcp-listener.ts";
import { UdpListener } from "../listen/udp-listener.ts";
import { placeKey, type UserspaceRuntime } from "./userspace-runtime.ts";

/** The service port to which a frontend belongs. */
interface FrontendOwner {
  readonly name: string;
  /** True for the first frontend of the port. */
  readonly isFirst: boolean;
  /** Whether there are fewer than `maxListenersPerService` frontends of the Service before this one. */
  readonly isWithinShare: boolean;
  readonly balancer: Balancer;
}

interface OpenListener {
  readonly at: EndpointAddress;
  close(): Promise<void>;
}

/**
 * A frontend in the plan, with its listener. If the frontend passes to another Service, it keeps its listener.
 *
 * A listener that must move or is no longer needed is replaced in two steps, so that no packet meets a closed port:
 * {@link openAt} opens the new listener (if any) and keeps the old one; after the change has been published to the
 * entry, {@link closeReplaced} closes the old one. TCP connections of a closed listener go on; UDP flows end with it.
 */
export class ServedFrontend implements EntryFrontend, ServedPort {
  readonly id: string;
  readonly senders: Senders;
  readonly #runtime: UserspaceRuntime;
  frontend: Frontend;
  #owner: FrontendOwner;
  #listener: OpenListener | undefined;
  readonly #replaced: OpenListener[] = [];
  /** Whether the current plan contains this frontend. */
  isPlanned = true;
  /** Reason why the frontend has no listener although it needs one; undefined otherwise. */
  failure: string | undefined;

  constructor(id: string, frontend: Frontend, owner: FrontendOwner, senders: Senders, runtime: UserspaceRuntime) {
    this.id = id;
    this.senders = senders;
    this.frontend = frontend;
    this.#owner = owner;
    this.#runtime = runtime;
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

  get verdict(): Verdict {
    return verdictOf(this.frontend);
  }

  get isListening(): boolean {
    return this.#listener !== undefined;
  }

  /** The state to publish to the entry. */
  get state(): EntryState {
    if (!this.isPlanned) return { kind: "none" };
    const { verdict } = this;
    if (verdict !== "serve") return { kind: verdict };
    return this.#listener === undefined ? { kind: "none" } : { kind: "open", at: this.#listener.at };
  }

  /** Applies a new plan, which may belong to another Service. Open connections go on. */
  update(frontend: Frontend, owner: FrontendOwner): void {
    this.frontend = frontend;
    this.#owner = owner;
    this.isPlanned = true;
  }

  /**
   * Opens a listener at a place; if `place` is undefined, opens none. The previous listener stays open until
   * {@link closeReplaced}, even if the new one cannot be opened. In that case {@link failure} is set and the frontend
   * counts as having no listener, because the entry will no longer lead to the previous place. Returns whether a
   * listener was opened.
   */
  async openAt(place: Place | undefined): Promise<boolean> {
    this.failure = undefined;
    if (this.#isAt(place)) return false;
    if (this.#listener !== undefined) this.#replaced.push(this.#listener);
    this.#listener = undefined;
    try {
      this.#listener = place && (await this.#openFirst(place));
    } catch (error) {
      this.failure = reasonOf(error);
    }
    return this.#listener !== undefined;
  }

  /** Closes the listeners that {@link openAt} has replaced. Returns whether there were any. */
  closeReplaced(): boolean {
    const replaced = this.#replaced.splice(0);
    for (const listener of replaced) void listener.close();
    return replaced.length > 0;
  }

  close(): void {
    if (this.#listener !== undefined) this.#replaced.push(this.#listener);
    this.#listener = undefined;
    this.closeReplaced();
  }

  /** Describes the frontend in one line. *Shape:* `TCP 10.96.0.1:80 default/web serve at 192.0.2.1:20173`. */
  describe(): string {
    const at = this.#listener?.at;
    const outcome = at === undefined ? this.verdict : `serve at ${addressAndPort(at.address, at.port)}`;
    return describeFrontend(this.frontend, this.name, outcome);
  }

  #isAt(place: Place | undefined): boolean {
    const at = this.#listener?.at;
    if (at === undefined || place === undefined) return at === place;
    return at.address === place.address && place.ports.includes(at.port);
  }

  /** Listens at the first free port of a place. */
  async #openFirst({ address, ports }: Place): Promise<OpenListener> {
    const { maxListenersPerService } = this.#runtime.settings;
    if (!this.#owner.isWithinShare) throw new Error(`a Service has at most ${maxListenersPerService} local ports`);
    if (address === undefined) throw new Error("the node has no address to listen at");
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

  async #open(at: EndpointAddress): Promise<OpenListener> {
    const { relay, udp, listening } = this.#runtime;
    const { protocol } = this.frontend;
    const listener =
      protocol === "TCP" ? await TcpListener.open(this, at, relay) : await UdpListener.open(this, at, udp);
    listening.add(placeKey(protocol, at));
    const close = (): Promise<void> => {
      listening.delete(placeKey(protocol, at));
      return listener.close();
    };
    return { at, close };
  }
}

/** Describes a frontend of a service port, and what happens to its clients. */
export function describeFrontend({ address, protocol, port }: Frontend, name: string, outcome: string): string {
  return `${protocol} ${addressAndPort(address ?? "*", port)} ${name} ${outcome}`;
}

/** Maximum number of clients that are remembered for one Service port with affinity. */
const maxAffinityClients = 100_000;

/** Returns the id of a frontend. *Shape:* `TCP 10.96.0.1 80`, `UDP * 30053`. */
const idOf = ({ address, protocol, port }: Pick<Frontend, "address" | "protocol" | "port">): string =>
  `${protocol} ${address ?? "*"} ${port}`;

/**
 * The frontends and balancers of one family according to the last plan. The table opens no listeners; {@link update}
 * returns the frontends that have changed. SCTP frontends are left out, because Node.js has no SCTP sockets.
 */
export class FrontendTable {
  readonly #runtime: UserspaceRuntime;
  readonly #senders: Senders;
  readonly #frontends = new Map<string, ServedFrontend>();
  readonly #idsByService = new Map<ServiceKey, ReadonlySet<string>>();
  readonly #balancersByService = new Map<ServiceKey, ReadonlyMap<string, Balancer>>();

  constructor(runtime: UserspaceRuntime, senders: Senders) {
    this.#runtime = runtime;
    this.#senders = senders;
  }

  get all(): Iterable<ServedFrontend> {
    return this.#frontends.values();
  }

  /** Keys of the Services that have frontends or balancers. */
  get keys(): Iterable<ServiceKey> {
    return this.#balancersByService.keys();
  }

  has(service: ServiceKey): boolean {
    return this.#balancersByService.has(service);
  }

  /**
   * Applies the plans of these Services. Returns the frontends that may have to be opened or closed.
   *
   * `keys` must contain every Service whose plan has changed since the last call: a frontend that passes from one
   * Service to another stays open only if `keys` contains both Services.
   */
  update(plan: FamilyPlan, keys: Iterable<ServiceKey>): readonly ServedFrontend[] {
    const desired = new Map<string, { readonly frontend: Frontend; readonly owner: FrontendOwner }>();
    const lost = new Set<string>();
    for (const key of keys) {
      for (const id of this.#idsByService.get(key) ?? []) lost.add(id);
      const ids = new Set<string>();
      for (const [port, balancer] of this.#updateBalancers(plan, key)) {
        for (const [at, frontend] of port.frontends.entries()) {
          const id = idOf(frontend);
          const isWithinShare = ids.size < this.#runtime.settings.maxListenersPerService;
          ids.add(id);
          desired.set(id, { frontend, owner: { name: port.name, isFirst: at === 0, isWithinShare, balancer } });
        }
      }
      if (ids.size === 0) this.#idsByService.delete(key);
      else this.#idsByService.set(key, ids);
    }
    const changed: ServedFrontend[] = [];
    for (const id of lost) {
      const known = this.#frontends.get(id);
      if (desired.has(id) || known === undefined) continue;
      known.isPlanned = false;
      changed.push(known);
    }
    for (const [id, { frontend, owner }] of desired) {
      const known = this.#frontends.get(id);
      const served = known ?? new ServedFrontend(id, frontend, owner, this.#senders, this.#runtime);
      known?.update(frontend, owner);
      this.#frontends.set(id, served);
      changed.push(served);
    }
    return changed;
  }

  /** Forgets a frontend that is no longer in any plan. */
  delete(frontend: ServedFrontend): void {
    this.#frontends.delete(frontend.id);
  }

  #updateBalancers(plan: FamilyPlan, key: ServiceKey): readonly (readonly [ServicePortPlan, Balancer])[] {
    const { table, settings } = this.#runtime;
    const { drainMs } = settings.tcp;
    const service = plan.service(key);
    const view = plan.view?.(key);
    const before = this.#balancersByService.get(key) ?? new Map<string, Balancer>();
    const nowMs = performance.now();
    const after = new Map<string, Balancer>();
    const ports = (service?.ports ?? []).filter(({ protocol }) => protocol !== "SCTP");
    const pairs = ports.map((port) => {
      const id = `${port.protocol} ${port.name}`;
      const draining = answeringEndpoints(view, port, plan.node.family);
      // Not `port`: a function keeps what it refers to.
      const { name, protocol } = port;
      const isLoop = (endpoint: BalancedEndpoint): boolean => this.#runtime.isLoop(name, protocol, endpoint);
      const balancing = { plan: port, draining, drainMs, isLoop };
      const known = before.get(id);
      known?.update(balancing, nowMs);
      const balancer = known ?? new Balancer(table.of(key), balancing, maxAffinityClients, nowMs);
      after.set(id, balancer);
      return [port, balancer] as const;
    });
    for (const [id, balancer] of before) if (!after.has(id)) balancer.close(nowMs);
    if (after.size === 0) this.#balancersByService.delete(key);
    else this.#balancersByService.set(key, after);
    return pairs;
  }
}
