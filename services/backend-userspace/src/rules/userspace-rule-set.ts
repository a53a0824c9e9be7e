import type { FamilyPlan, RuleList, RuleSet } from "@kpng/backend-kit/proxy/rule-set.ts";
import { nextTurn } from "@kpng/backend-kit/sync/next-turn.ts";
import type { SyncRequests } from "@kpng/backend-kit/sync/sync-requests.ts";
import type { SyncStages } from "@kpng/backend-kit/types/sync-update.ts";
import type { AddressSet, Family } from "@kpng/model/address.ts";
import type { Protocol, ServiceKey } from "@kpng/model/service.ts";
import { type Clash, frontendId } from "@kpng/service-plan/frontend-claims.ts";
import type { EndpointAddress } from "@kpng/service-plan/service-plan.ts";
import type { Entry, Place } from "../entry/entry.ts";
import { BackendUserspaceError } from "../entry/userspace-error.ts";
import { Senders } from "../listen/senders.ts";
import { FrontendTable } from "./frontend-table.ts";
import type { ServedFrontend } from "./served-frontend.ts";
import { makeUserspaceChange, type UserspaceChange } from "./userspace-change.ts";
import type { UserspaceRuntime } from "./userspace-runtime.ts";

interface UserspaceRuleSetOptions {
  readonly entry: Entry;
  readonly runtime: UserspaceRuntime;
  readonly requests: Pick<SyncRequests, "request">;
  /** The node's addresses. */
  readonly localAddresses: () => AddressSet;
}

const openAtOnce = 64;

/**
 * The listeners of one family, as a rule set of the kit. `backend.ts` makes one for each family, and `FamilyRules` of
 * backend-kit calls it. Separate from `UserspaceRuntime`, which has what both families share.
 *
 * The "rules" are listeners in this process and what brings packets to them (`Entry`); they end with the process, so no
 * rules of an earlier run can be in force. A frontend that cannot be opened, because another program has its port, is
 * logged and tried again with each check, and does not affect others. A sync fails if none can be opened, so that
 * `/healthz` fails while nothing listens.
 */
export class UserspaceRuleSet implements RuleSet<UserspaceChange> {
  readonly #options: UserspaceRuleSetOptions;
  readonly #senders = new Senders();
  readonly #table: FrontendTable;
  #plan: FamilyPlan | undefined;
  /** Frontends that have gone and whose last connection has ended. */
  #drained = new Set<ServedFrontend>();
  #isClosed = false;

  constructor(options: UserspaceRuleSetOptions) {
    this.#options = options;
    this.#table = new FrontendTable(options.runtime, this.#senders);
    options.runtime.add(this);
  }

  get family(): Family {
    return this.#options.entry.family;
  }

  get socketCount(): number {
    return this.#wanted().reduce((sum, { socketCount }) => sum + socketCount, 0);
  }

  get closedCount(): number {
    return this.#wanted().filter(({ failure }) => failure !== undefined).length;
  }

  readonly captures = (protocol: Protocol, to: EndpointAddress): boolean => this.#options.entry.captures(protocol, to);

  readonly serves = (service: ServiceKey): boolean => this.#table.has(service);

  get desired(): RuleList {
    return this.#list(() => true);
  }

  get installed(): RuleList {
    return this.#list(({ failure }) => failure === undefined);
  }

  get clashes(): readonly Clash[] {
    const { entry } = this.#options;
    const wanted = this.#wanted();
    const anyNodePort = wanted.find(({ frontend }) => frontend.address === undefined);
    if (entry.kind !== "address" || anyNodePort === undefined) return [];
    // All node ports answer at the same addresses.
    const addresses = new Set(entry.placesOf(anyNodePort).map(({ address }) => address));
    return wanted.flatMap((owner) => {
      const { address } = owner.frontend;
      if (address === undefined || !addresses.has(address) || entry.placesOf(owner).length === 0) return [];
      const nodePort = this.#table.nodePort(owner.frontend);
      if (nodePort?.verdict !== "serve" || nodePort.service === owner.service) return [];
      return [{ frontend: frontendId(owner.frontend), served: owner.service, shadowed: nodePort.service }];
    });
  }

  async sync(plan: FamilyPlan, touched: ReadonlySet<ServiceKey> | "all", stages: SyncStages): Promise<UserspaceChange> {
    this.#plan = plan;
    const isNodeChanged = this.#useNode(plan);
    const keys = touched === "all" ? new Set([...plan.keys(), ...this.#table.keys]) : touched;
    const changed = this.#table.update(plan, keys);
    const isAll = touched === "all" || isNodeChanged;
    const change = await this.#apply(isAll ? [...this.#table.all] : changed, isAll ? "full" : "partial", stages);
    this.#options.runtime.prune();
    return change;
  }

  async repair(stages?: SyncStages): Promise<UserspaceChange> {
    if (this.#plan === undefined) throw new Error("repair before the first sync");
    this.#useNode(this.#plan);
    const repaired = await this.#options.entry.repair();
    return this.#apply([...this.#table.all], "full", stages, repaired);
  }

  async isInstalled(): Promise<boolean> {
    return false;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    const { entry, runtime } = this.#options;
    // First, so that no packet is sent to a closed listener.
    await entry.close().catch((error: unknown) => {
      runtime.log.error("entry not removed", { family: this.family, reason: String(error) });
    });
    for (const frontend of this.#table.all) frontend.closeExcept([], () => undefined);
    runtime.remove(this);
  }

  /** Takes the node's addresses; returns whether listeners must move. */
  #useNode(plan: FamilyPlan): boolean {
    const localAddresses = this.#options.localAddresses()[this.family];
    this.#senders.update(plan.node, localAddresses);
    return this.#options.entry.useNode({ plan: plan.node, localAddresses });
  }

  async #apply(
    frontends: readonly ServedFrontend[],
    mode: "full" | "partial",
    stages: SyncStages | undefined,
    repaired: readonly string[] = [],
  ): Promise<UserspaceChange> {
    const { entry, runtime } = this.#options;
    const wanted = frontends.filter(({ isWanted }) => isWanted);
    const placesOf = (frontend: ServedFrontend) => this.#placesOf(frontend);
    const isSettled = repaired.length === 0 && frontends.every((one) => one.isSettledAt(placesOf(one)));
    if (!isSettled) stages?.committing();
    await entry.prepare(wanted);
    const before = new Map(frontends.map((frontend) => [frontend, frontend.describe()]));
    const freed = await this.#freePlaces(frontends);
    const opened: string[] = [];
    const changed = new Set<ServedFrontend>();
    for (let start = 0; start < frontends.length; start += openAtOnce) {
      await Promise.all(
        frontends.slice(start, start + openAtOnce).map(async (frontend) => {
          const failureBefore = frontend.failure;
          if (await frontend.openAt(placesOf(frontend))) changed.add(frontend);
          if (changed.has(frontend)) opened.push(frontend.describe());
          if (frontend.failure !== undefined && frontend.failure !== failureBefore) {
            const { name: service, failure: reason } = frontend;
            runtime.log.error("frontend not opened: it is tried again with each check", { service, reason });
          }
        }),
      );
    }
    runtime.updateLimits();
    await entry.publish(frontends.map((at) => ({ at, state: stateAt(at, placesOf(at)) })));
    const closed: string[] = [];
    let isAnyClosed = false;
    for (const frontend of frontends) {
      const isClosed = frontend.closeExcept(placesOf(frontend), () => this.#onDrained(frontend));
      isAnyClosed ||= isClosed;
      if ((isClosed || freed.has(frontend)) && !changed.has(frontend)) closed.push(before.get(frontend) ?? frontend.id);
      if (!frontend.isWanted && !frontend.isDraining) this.#drained.add(frontend);
    }
    for (const frontend of frontends) frontend.setPublished();
    // Its address can go now.
    if (isAnyClosed) await this.#listenersClosed();
    await this.#releaseDrained();
    const failed = this.#wanted().flatMap(({ failure }) => (failure === undefined ? [] : [failure]));
    this.#requireListener(failed);
    return makeUserspaceChange(this.family, mode, { opened, closed, repaired, failed });
  }

  /**
   * Where a frontend listens. At an address of the node, a Service that has this address as an external IP or
   * load-balancer IP goes before a node port of the same number, also without endpoints. With entries by redirection,
   * the order of the rules decides that.
   */
  #placesOf(frontend: ServedFrontend): readonly Place[] {
    const { entry } = this.#options;
    if (!frontend.isWanted || frontend.verdict !== "serve") return [];
    const places = entry.placesOf(frontend);
    if (entry.kind !== "address" || frontend.frontend.address !== undefined) return places;
    return places.filter(({ address }) => this.#ownerAt(address, frontend) === undefined);
  }

  /** Returns the frontend to which a node port yields at an address. */
  #ownerAt(address: string, { frontend }: ServedFrontend): ServedFrontend | undefined {
    const owner = this.#table.at(address, frontend);
    return owner === undefined || this.#options.entry.placesOf(owner).length === 0 ? undefined : owner;
  }

  /**
   * Closes listeners at places where another frontend is about to listen: a node port that yields to an external IP,
   * and the other way round. Returns the frontends that had them.
   */
  async #freePlaces(frontends: readonly ServedFrontend[]): Promise<ReadonlySet<ServedFrontend>> {
    const freed = new Set<ServedFrontend>();
    if (this.#options.entry.kind !== "address") return freed;
    const keyOf = ({ frontend: { protocol, port } }: ServedFrontend, address: string) =>
      `${protocol} ${address} ${port}`;
    const owners = new Map(
      frontends.flatMap((one) => this.#placesOf(one).map(({ address }) => [keyOf(one, address), one] as const)),
    );
    for (const frontend of frontends) {
      const open = frontend.listensAt;
      const kept = open.filter(({ address }) => (owners.get(keyOf(frontend, address)) ?? frontend) === frontend);
      if (kept.length === open.length) continue;
      frontend.closeExcept(
        kept.map(({ address, port }) => ({ address, ports: [port] })),
        () => this.#onDrained(frontend),
      );
      freed.add(frontend);
    }
    if (freed.size > 0) await this.#listenersClosed();
    return freed;
  }

  /** Waits until listeners have closed, so that their ports are free: two turns of the event loop. */
  async #listenersClosed(): Promise<void> {
    for (let turn = 0; turn < 2; turn++) await nextTurn();
  }

  #onDrained(frontend: ServedFrontend): void {
    if (frontend.isWanted || this.#isClosed) return;
    this.#drained.add(frontend);
    this.#options.requests.request("partial", "the last connections of a removed frontend have ended");
  }

  /** Forgets frontends without connections. A frontend that has returned in the meantime stays. */
  async #releaseDrained(): Promise<void> {
    const drained = [...this.#drained].filter(({ isWanted }) => !isWanted);
    this.#drained.clear();
    for (const frontend of drained) {
      this.#table.delete(frontend);
      await this.#options.entry.release(frontend);
    }
  }

  /** Errors: NOTHING_LISTENS if there are frontends to open and none is. */
  #requireListener(failed: readonly string[]): void {
    if (failed.length === 0 || this.socketCount > 0) return;
    throw new BackendUserspaceError(
      "NOTHING_LISTENS",
      `none of ${failed.length} frontends could be opened, the first because of ${failed[0]}`,
    );
  }

  #wanted(): readonly ServedFrontend[] {
    return [...this.#table.all].filter(({ isWanted }) => isWanted);
  }

  #list(isShown: (frontend: ServedFrontend) => boolean): RuleList {
    const shown = () => this.#wanted().filter(isShown);
    return {
      count: () => shown().length,
      lines: () =>
        shown()
          .map((frontend) => frontend.describe())
          .sort(),
    };
  }
}

/** The state to publish, without the listeners that are about to be closed. */
function stateAt(frontend: ServedFrontend, places: ReturnType<Entry["placesOf"]>) {
  const { state } = frontend;
  if (state.kind !== "open") return state;
  const kept = state.places.filter(({ address, port }) =>
    places.some((place) => place.address === address && place.ports.includes(port)),
  );
  return kept.length === 0 ? ({ kind: "none" } as const) : ({ kind: "open", places: kept } as const);
}
