import type { FamilyPlan } from "@kpng/backend-kit/proxy/rule-set.ts";
import { nextTurn } from "@kpng/backend-kit/sync/next-turn.ts";
import type { Family } from "@kpng/model/address.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { BackendEbpfError } from "../bpf/ebpf-error.ts";
import { familyOf, type KeyText } from "../layout/keys.ts";
import { type MapSizes, sizes } from "../layout/map-layouts.ts";
import { memberFlags } from "../layout/routes.ts";
import { runBytes } from "../layout/runs.ts";
import { readSlots } from "../tables/installed-frontends.ts";
import { Spans } from "../tables/spans.ts";
import { endpointText } from "../tables/udp-peers.ts";
import { type WantedFrontend, type WantedService, wantedService } from "../tables/wanted-service.ts";
import { FrontendSlots } from "./frontend-slots.ts";
import type { EbpfMaps, GracePeriods } from "./maps.ts";
import { TablesChange } from "./tables-change.ts";

/** Number of Services written between two turns of the event loop, so that health is answered during a full sync. */
const servicesPerTurn = 100;

/** A frontend in the maps. */
interface InstalledFrontend {
  readonly slot: number;
  /** Undefined for a frontend of an earlier run, until a plan has it. */
  service: ServiceKey | undefined;
}

/**
 * The frontends of one family in the maps. `SocketRuleSet` calls it with each plan, one call at a time.
 *
 * Programs read the maps at any moment, so a change is published by one store: a new set of endpoints is written to
 * elements that no route leads to (a run); then the 8 bytes of a route are replaced, which name the run and everything
 * that belongs to it; then the old run rests until no program can still read it. A frontend keeps its slot for as long
 * as it exists; the slot's key tells readers that they found the right one.
 *
 * Each family has one half of the slots and of the elements, so that families need no agreement.
 */
export class FamilyTables {
  readonly #family: Family;
  readonly #maps: EbpfMaps;
  readonly #grace: GracePeriods;
  readonly #elements: Buffer;
  readonly #sizes: MapSizes;
  readonly #slots: FrontendSlots;
  #runs = new Spans(0, 0);
  #installed = new Map<KeyText, InstalledFrontend>();
  /** Number of uses of a run, as `FrontendSlots.eachUse` finds them, by its first element. */
  #runUses = new Map<number, number>();
  #members = new Map<KeyText, number>();
  readonly #services = new Map<ServiceKey, WantedService>();
  /** False from the begin of a call until its end: what it replaced waits for a grace period. */
  #isComplete = true;

  constructor(family: Family, maps: EbpfMaps, grace: GracePeriods, mapSizes: MapSizes) {
    this.#family = family;
    this.#maps = maps;
    this.#grace = grace;
    this.#sizes = mapSizes;
    this.#slots = new FrontendSlots(family, maps.get("slots").memory, mapSizes.maxFrontends);
    this.#elements = maps.get("endpoints").memory;
  }

  /** Services of the last plan. */
  get services(): ReadonlyMap<ServiceKey, WantedService> {
    return this.#services;
  }

  /** Removes the endpoints that a Service port of UDP has, for `StaleSockets`. O(members). */
  readonly removeServed = (endpoints: Set<string>): void => {
    for (const [key, flags] of this.#members) if ((flags & memberFlags.udp) !== 0) endpoints.delete(endpointText(key));
  };

  /** Writes the Services that may have changed. Errors: BPF_FAILED; then the next call is a full one. */
  sync(plan: FamilyPlan, touched: Iterable<ServiceKey>, committing: () => void): TablesChange {
    const change = new TablesChange(committing);
    this.#isComplete = false;
    for (const key of touched) this.#tryPut(plan, key, change);
    this.#finish(change);
    return change;
  }

  /** Reads all maps, and writes what differs from the plan. Errors: as {@link sync}. */
  async syncAll(plan: FamilyPlan, committing: () => void): Promise<TablesChange> {
    // After a failure, nothing has waited for what was replaced.
    await (this.#isComplete ? this.#grace.settled : this.#grace.pass());
    this.#isComplete = false;
    this.#read();
    const change = new TablesChange(committing);
    let count = 0;
    for (const key of plan.keys()) {
      this.#tryPut(plan, key, change);
      if (++count % servicesPerTurn !== 0) continue;
      this.#publish(change);
      await nextTurn();
    }
    for (const key of this.#services.keys()) if (plan.service(key) === undefined) this.#services.delete(key);
    // What is not wanted is found among what is installed: after a failure, `before` of `#put` may be wrong.
    const [wantedFrontends, wantedMembers] = [new Set<KeyText>(), new Set<KeyText>()];
    for (const { frontends, members } of this.#services.values()) {
      for (const { key } of frontends) wantedFrontends.add(key);
      for (const key of members.keys()) wantedMembers.add(key);
    }
    for (const key of this.#installed.keys()) if (!wantedFrontends.has(key)) change.removals.add(key);
    for (const key of this.#members.keys()) if (!wantedMembers.has(key)) change.formerMembers.set(key, 0);
    this.#finish(change);
    return change;
  }

  /** Takes the contents of the maps as what is installed. */
  #read(): void {
    const { maxEndpoints } = this.#sizes;
    const half = this.#family === "v4" ? 0 : 1;
    // Element 0 stands for none.
    this.#slots.reset();
    this.#runs = new Spans(half * maxEndpoints + 1 - half, maxEndpoints - 1 + half);
    this.#runUses = new Map();
    const contents = this.#maps.contents();
    this.#installed = new Map();
    for (const [key, slot] of readSlots(this.#family, contents)) {
      if (!this.#slots.reserve(slot)) continue;
      this.#installed.set(key, { slot, service: undefined });
      this.#slots.eachUse(slot, (run) => {
        const length = (runBytes(this.#elements, run)?.length ?? 0) / sizes.endpoint;
        // A run that cannot be read is not counted.
        if (length > 0 && (this.#runUses.has(run) || this.#runs.reserve(run, length))) this.#use(run, 1);
      });
    }
    const members = this.#maps
      .get("members")
      .entries()
      .filter(([key]) => familyOf(key, 8) === this.#family);
    this.#members = new Map(members.map(([key, value]) => [key.toString("latin1"), value.readUInt32LE(0)]));
  }

  /** As {@link #put}, but for a lack of room, so that other Services are written, and removed ones make room. */
  #tryPut(plan: FamilyPlan, key: ServiceKey, change: TablesChange): void {
    try {
      this.#put(plan, key, change);
    } catch (error) {
      if (!(error instanceof BackendEbpfError) || error.code !== "MAP_FULL") throw error;
      change.full ??= error;
    }
  }

  #put(plan: FamilyPlan, key: ServiceKey, change: TablesChange): void {
    const servicePlan = plan.service(key);
    const before = this.#services.get(key);
    const wanted = servicePlan === undefined ? undefined : wantedService(servicePlan, plan.view?.(key), plan.node);
    for (const frontend of before?.frontends ?? []) {
      if (this.#installed.get(frontend.key)?.service === key) change.removals.add(frontend.key);
    }
    for (const frontend of wanted?.frontends ?? []) {
      change.removals.delete(frontend.key);
      const installed = this.#installed.get(frontend.key);
      if (installed !== undefined) installed.service = key;
    }
    if (wanted === undefined || wanted.frontends.length === 0) this.#services.delete(key);
    else this.#services.set(key, wanted);
    // From here on, there may be no room.
    for (const [member, flags] of wanted?.members ?? []) {
      const present = this.#members.get(member) ?? 0;
      // What a member loses, it loses after the routes are replaced.
      if ((present | flags) !== present) this.#setMember(member, present | flags, change);
      if ((present | flags) !== flags) change.formerMembers.set(member, flags);
      else change.formerMembers.delete(member);
    }
    for (const frontend of wanted?.frontends ?? []) this.#write(frontend, key, change);
    for (const member of before?.members.keys() ?? []) {
      if (wanted?.members.has(member) !== true) change.formerMembers.set(member, 0);
    }
  }

  #write(wanted: WantedFrontend, service: ServiceKey, change: TablesChange): void {
    const installed = this.#installed.get(wanted.key);
    for (const [index, { flags, run }] of wanted.routes.entries()) {
      const present = installed === undefined ? 0 : this.#slots.runOf(installed.slot, index);
      this.#slots.prepare(index, flags, run === undefined ? 0 : this.#placeOf(run, present, change));
    }
    if (installed !== undefined && this.#slots.isPrepared(installed.slot)) return;
    change.note(wanted, installed === undefined);
    change.begin();
    const slot = installed?.slot ?? this.#takeSlot(wanted.key);
    if (installed !== undefined) this.#release(slot, change);
    this.#slots.write(slot);
    this.#slots.eachUse(slot, (run) => this.#use(run, 1));
    if (installed !== undefined) return;
    change.added.keys.push(wanted.key);
    change.added.slots.push(slot);
    this.#installed.set(wanted.key, { slot, service });
  }

  /**
   * Returns the first element of a run: of one that this change wrote, or of an installed one with the same contents.
   */
  #placeOf(run: Buffer, installed: number, change: TablesChange): number {
    const known = change.runs.get(run);
    if (known !== undefined) return known;
    const isSame = this.#runUses.has(installed) && runBytes(this.#elements, installed)?.equals(run) === true;
    const first = isSame ? installed : this.#writeRun(run, change);
    change.runs.set(run, first);
    return first;
  }

  #writeRun(run: Buffer, change: TablesChange): number {
    const length = run.length / sizes.endpoint;
    const first = this.#runs.take(length);
    if (first === undefined) {
      throw new BackendEbpfError(
        "MAP_FULL",
        `no room for a set of ${length - 1} endpoints: raise --max-endpoints (${this.#sizes.maxEndpoints} per family)`,
      );
    }
    change.begin();
    run.copy(this.#elements, first * sizes.endpoint);
    this.#runUses.set(first, 0);
    return first;
  }

  #takeSlot(key: KeyText): number {
    const slot = this.#slots.take(key);
    if (slot !== undefined) return slot;
    const { maxFrontends } = this.#sizes;
    throw new BackendEbpfError("MAP_FULL", `more than ${maxFrontends} frontends in a family: raise --max-frontends`);
  }

  #use(run: number, difference: 1 | -1): void {
    this.#runUses.set(run, (this.#runUses.get(run) ?? 0) + difference);
  }

  /** Ends the use of what a slot's routes lead to. */
  #release(slot: number, change: TablesChange): void {
    this.#slots.eachUse(slot, (run) => {
      if (this.#runUses.has(run)) this.#use(run, -1);
      change.unusedRuns.add(run);
    });
  }

  #setMember(key: KeyText, flags: number, change: TablesChange): void {
    change.begin();
    change.members++;
    if (flags === 0) {
      if (((this.#members.get(key) ?? 0) & memberFlags.udp) !== 0) change.goneUdp.push(endpointText(key));
      this.#maps.get("members").delete(key);
      this.#members.delete(key);
    } else {
      this.#maps.get("members").set(key, flags);
      this.#members.set(key, flags);
    }
  }

  /** Lets programs find new frontends, whose slots are complete. */
  #publish(change: TablesChange): void {
    this.#maps.get("frontends").setAll(change.added.keys.splice(0), change.added.slots.splice(0));
  }

  /** Deletes what is not wanted any more, and returns its places to use after a grace period. */
  #finish(change: TablesChange): void {
    this.#publish(change);
    const removed: number[] = [];
    for (const key of change.removals) {
      const installed = this.#installed.get(key);
      if (installed === undefined) continue;
      change.begin();
      this.#maps.get("frontends").delete(key);
      this.#installed.delete(key);
      this.#release(installed.slot, change);
      change.deleted.push(key);
      removed.push(installed.slot);
    }
    for (const [key, flags] of change.formerMembers) {
      if ((this.#members.get(key) ?? 0) !== flags) this.#setMember(key, flags, change);
    }
    const runs = [...change.unusedRuns].filter((run) => this.#runUses.get(run) === 0);
    for (const run of runs) this.#runUses.delete(run);
    this.#isComplete = true;
    if (removed.length + runs.length === 0) return;
    this.#grace.after(() => {
      for (const slot of removed) this.#slots.give(slot);
      for (const run of runs) this.#runs.give(run, (runBytes(this.#elements, run)?.length ?? 0) / sizes.endpoint);
    });
  }
}
