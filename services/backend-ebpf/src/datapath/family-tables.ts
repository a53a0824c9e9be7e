import { setImmediate as nextTurn } from "node:timers/promises";
import type { FamilyPlan } from "@kpng/backend-kit/proxy/rule-set.ts";
import type { Family } from "@kpng/model/address.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { describeKey, type KeyText, type MapSizes, routeKinds, runBytes, sizes } from "../layout/layout.ts";
import {
  type DesiredFrontend,
  desiredFrontends,
  type FrontendDifference,
  maxDescribed,
  readSlots,
} from "../tables/frontends.ts";
import { FrontendSlots, Spans } from "./frontend-slots.ts";
import type { EbpfMaps, GracePeriods } from "./maps.ts";

/** State and result of one call of a method of `FamilyTables`. */
export class TablesChange {
  /** The first differences, at most `maxDescribed`, without the routes. */
  readonly frontends: FrontendDifference[] = [];
  readonly counts = { written: 0, deleted: 0 };
  /** New frontends that `#publish` has not published yet. */
  readonly added: { readonly keys: KeyText[]; readonly slots: number[] } = { keys: [], slots: [] };
  /** Installed frontends that no Service of the plan has, as far as the call has come. */
  readonly removals = new Set<KeyText>();
  /** First element of each run that this call uses, keyed by the object that routes with equal runs share. */
  readonly runs = new Map<Buffer, number>();
  /** Runs that were written, or lost a use, in this call: `#finish` frees those without a use. */
  readonly doubtfulRuns = new Set<number>();

  note(kind: "written" | "deleted", key: KeyText, wasInstalled: boolean): void {
    this.counts[kind]++;
    if (this.frontends.length === maxDescribed) return;
    const place = describeKey(key);
    const [before, after] = [wasInstalled ? place : undefined, kind === "deleted" ? undefined : place];
    this.frontends.push({ place, before, after });
  }
}

/** Number of Services after which a full sync gives the event loop a turn, so that health probes are answered. */
const servicesPerTurn = 100;

/** Returns the frontends of a Service; none if the plan does not have it. */
export function frontendsOf(plan: FamilyPlan, key: ServiceKey): readonly DesiredFrontend[] {
  const service = plan.service(key);
  return service === undefined ? [] : desiredFrontends(service, plan.node);
}

interface InstalledFrontend {
  readonly slot: number;
  /** Undefined for a frontend from an earlier run until a plan contains it. */
  service: ServiceKey | undefined;
}

/**
 * The frontends of one family in BPF maps, for TCP sockets that choose their endpoint at `connect`.
 *
 * Problem: programs may read the maps at any moment, on all CPUs, and hash elements are recycled immediately. A value
 * of more than 8 bytes may be read half old and half new. Yet a socket must get an endpoint from a set that was valid
 * as a whole.
 *
 * Idea: all values that belong together are reached through one word of 8 bytes, which a single store replaces. The
 * example is default/web at 10.96.0.1:80, with two endpoints for pods and (because of policy Local) one endpoint for
 * the node:
 *
 * ```text
 * frontends   10.96.0.1:80/TCP ─► slot 17
 * slots[17]   pod:  balance, run 40      node: balance, run 43      key 10.96.0.1:80/TCP
 * endpoints   40: count 2    41: 10.1.0.7:8080    42: 10.1.0.8:8080
 *             43: count 1    44: 10.1.0.7:8080
 * ```
 *
 * When 10.1.0.8 is removed, the new set {10.1.0.7} is written as a run to elements to which no word leads (45: count 1,
 * 46: 10.1.0.7:8080). Then the pod's word is replaced by "balance, run 45"; this store makes the change visible to
 * sockets. Elements 40 to 42 are not reused until an RCU grace period has passed (`GracePeriods`).
 *
 * Invariants:
 *
 * - A frontend keeps its slot as long as it exists. The slot of a new frontend is complete before its key is published;
 *   the slot of a deleted frontend is not reused for a grace period.
 * - A slot contains its key. If a program finds a different key there, it has read a recycled hash element, and it
 *   looks up the frontend once more.
 * - Rules are installed first (`PairedRuleSet`), so a socket's connection to any destination may be left to nftables,
 *   which translates its packets. In every doubtful case (UDP, affinity, source ranges, a full map, a damaged element)
 *   the route is therefore "leave", which is always correct.
 * - Each family has one half of `slots` and of `endpoints`, so that the families need no coordination.
 * - Maps outlive the process. `syncAll` takes over the installed frontends and writes only differences; `Datapath`
 *   replaces programs of an earlier run when a family is complete.
 * - After a failure, replaced elements may still be in use: the next call waits for a grace period and reads
 *   everything.
 *
 * Rejected: an inner map for each Service (atomic, but each change waits some 20 ms for a grace period); the endpoints
 * as the value of the hash (may be read half old and half new); translation of packets by BPF programs at interfaces,
 * which failed for connections that began before a program was attached, for masquerading by other programs, and after
 * `conntrack -F` (docs/design/ebpf.md).
 */
export class FamilyTables {
  readonly #family: Family;
  readonly #maps: EbpfMaps;
  readonly #grace: GracePeriods;
  readonly #elements: Buffer;
  readonly #sizes: MapSizes;
  readonly #slots: FrontendSlots;
  /** Free elements of `endpoints`. There are none until `syncAll` has read the maps. */
  #runs = new Spans(0, 0);
  #installed = new Map<KeyText, InstalledFrontend>();
  /** Number of uses of each run (as counted by `FrontendSlots.eachUse`), keyed by the run's first element. */
  #runUses = new Map<number, number>();
  readonly #services = new Map<ServiceKey, readonly KeyText[]>();
  /** Services for which there was not enough room, in the order in which they are tried again. */
  readonly #withoutRoom = new Set<ServiceKey>();

  constructor(family: Family, maps: EbpfMaps, grace: GracePeriods, mapSizes: MapSizes) {
    this.#family = family;
    this.#maps = maps;
    this.#grace = grace;
    this.#sizes = mapSizes;
    this.#slots = new FrontendSlots(family, maps.get("slots").memory, mapSizes.maxFrontends);
    this.#elements = maps.get("endpoints").memory;
  }

  /** Frontends of the last plan, keyed by Service. Their endpoints are not kept: they are in the maps. */
  get services(): ReadonlyMap<ServiceKey, readonly KeyText[]> {
    return this.#services;
  }

  /** Number of Services that are left to the rules, in whole or in part, because a map is full. */
  get leftCount(): number {
    return this.#withoutRoom.size;
  }

  /** Writes the touched Services. At first, and after an error, {@link syncAll} must be called. Errors: BPF_FAILED. */
  sync(plan: FamilyPlan, touched: Iterable<ServiceKey>): TablesChange {
    const change = new TablesChange();
    for (const key of touched) this.#put(plan, key, change);
    // A grace period may have freed room, which the next sync uses, whichever Services it is about. The first failure
    // ends the loop, so that it costs little.
    for (const key of this.#withoutRoom) if (!this.#put(plan, key, change)) break;
    this.#finish(change);
    return change;
  }

  /** Reads all maps, and writes the differences from the plan. Errors: as {@link sync}. */
  async syncAll(plan: FamilyPlan): Promise<TablesChange> {
    // Programs may still read elements that an earlier process or a failed call replaced, and other elements must be
    // freed before `#read` counts what is free.
    await this.#grace.pass();
    this.#read();
    const change = new TablesChange();
    let count = 0;
    this.#withoutRoom.clear();
    const keys = new Set(plan.keys());
    for (const key of keys) {
      this.#put(plan, key, change);
      if (++count % servicesPerTurn !== 0) continue;
      this.#publish(change);
      await nextTurn();
    }
    for (const key of this.#services.keys()) if (!keys.has(key)) this.#services.delete(key);
    // Undesired frontends are found among the installed ones, because after a failure the previous plan's frontends may
    // not match the maps.
    const desired = new Set<KeyText>();
    for (const frontends of this.#services.values()) for (const key of frontends) desired.add(key);
    for (const key of this.#installed.keys()) if (!desired.has(key)) change.removals.add(key);
    this.#finish(change);
    return change;
  }

  /** Reads the installed frontends from the maps. */
  #read(): void {
    const { maxEndpoints } = this.#sizes;
    const half = this.#family === "v4" ? 0 : 1;
    this.#slots.reset();
    // Element 0 is left out, because the number 0 means "no run".
    this.#runs = new Spans(half * maxEndpoints + 1 - half, maxEndpoints - 1 + half);
    this.#runUses = new Map();
    const contents = this.#maps.contents();
    this.#installed = new Map();
    for (const [key, slot] of readSlots(this.#family, contents)) {
      if (!this.#slots.reserve(slot)) continue;
      this.#installed.set(key, { slot, service: undefined });
      this.#slots.eachUse(slot, (run) => {
        const length = (runBytes(this.#elements, run)?.length ?? 0) / sizes.endpoint;
        // The uses of a run that cannot be read are not counted.
        if (length > 0 && (this.#runUses.has(run) || this.#runs.reserve(run, length))) this.#use(run, 1);
      });
    }
  }

  /** Writes the frontends of a Service. Returns true if there was room for all. */
  #put(plan: FamilyPlan, key: ServiceKey, change: TablesChange): boolean {
    const desired = frontendsOf(plan, key);
    // A frontend may pass between two touched Services in either order: only its present Service removes it, and a
    // Service that has it cancels the removal.
    for (const frontend of this.#services.get(key) ?? []) {
      if (this.#installed.get(frontend)?.service === key) change.removals.add(frontend);
    }
    for (const frontend of desired) {
      change.removals.delete(frontend.key);
      const installed = this.#installed.get(frontend.key);
      if (installed !== undefined) installed.service = key;
    }
    const keys = desired.map((frontend) => frontend.key);
    if (keys.length === 0) this.#services.delete(key);
    else this.#services.set(key, keys);
    const isWritten = desired.map((frontend) => this.#write(frontend, key, change)).every(Boolean);
    if (isWritten) this.#withoutRoom.delete(key);
    else this.#withoutRoom.add(key);
    return isWritten;
  }

  /** Writes a frontend. Returns false if there was no room for a part of it, which is then left to the rules. */
  #write(desired: DesiredFrontend, service: ServiceKey, change: TablesChange): boolean {
    const installed = this.#installed.get(desired.key);
    let hasRoom = true;
    for (const [index, { kind, run }] of desired.routes.entries()) {
      const present = installed === undefined ? 0 : this.#slots.runOf(installed.slot, index);
      const place = run === undefined ? 0 : this.#placeOf(run, present, change);
      if (place === undefined) hasRoom = false;
      this.#slots.prepare(index, place === undefined ? routeKinds.leave : kind, place ?? 0);
    }
    if (installed !== undefined && this.#slots.isPrepared(installed.slot)) return hasRoom;
    const slot = installed?.slot ?? this.#slots.take(desired.key);
    if (slot === undefined) return false;
    change.note("written", desired.key, installed !== undefined);
    if (installed !== undefined) this.#release(slot, change);
    this.#slots.write(slot);
    this.#slots.eachUse(slot, (run) => this.#use(run, 1));
    if (installed !== undefined) return hasRoom;
    change.added.keys.push(desired.key);
    change.added.slots.push(slot);
    this.#installed.set(desired.key, { slot, service });
    return hasRoom;
  }

  /**
   * Returns the first element of a run. If this change has already placed the run, or the installed run has the same
   * contents, its place is used again; otherwise the run is written. Returns undefined if there is no room for it.
   */
  #placeOf(run: Buffer, installed: number, change: TablesChange): number | undefined {
    const known = change.runs.get(run);
    if (known !== undefined) return known;
    const isSame = this.#runUses.has(installed) && runBytes(this.#elements, installed)?.equals(run) === true;
    const first = isSame ? installed : this.#writeRun(run, change);
    if (first !== undefined) change.runs.set(run, first);
    return first;
  }

  #writeRun(run: Buffer, change: TablesChange): number | undefined {
    const first = this.#runs.take(run.length / sizes.endpoint);
    if (first === undefined) return undefined;
    run.copy(this.#elements, first * sizes.endpoint);
    this.#runUses.set(first, 0);
    change.doubtfulRuns.add(first);
    return first;
  }

  #use(run: number, difference: 1 | -1): void {
    this.#runUses.set(run, (this.#runUses.get(run) ?? 0) + difference);
  }

  /** Ends the use of the runs to which a slot's routes lead. */
  #release(slot: number, change: TablesChange): void {
    this.#slots.eachUse(slot, (run) => {
      if (this.#runUses.has(run)) this.#use(run, -1);
      change.doubtfulRuns.add(run);
    });
  }

  /** Makes new frontends, whose slots are complete, visible to programs. */
  #publish(change: TablesChange): void {
    this.#maps.get("frontends").setAll(change.added.keys.splice(0), change.added.slots.splice(0));
  }

  /** Deletes undesired frontends, and frees their slots and runs after a grace period. */
  #finish(change: TablesChange): void {
    this.#publish(change);
    const removed: number[] = [];
    for (const key of change.removals) {
      const installed = this.#installed.get(key);
      if (installed === undefined) continue;
      this.#maps.get("frontends").delete(key);
      this.#installed.delete(key);
      this.#release(installed.slot, change);
      change.note("deleted", key, true);
      removed.push(installed.slot);
    }
    const runs = [...change.doubtfulRuns].filter((run) => this.#runUses.get(run) === 0);
    for (const run of runs) this.#runUses.delete(run);
    if (removed.length + runs.length === 0) return;
    this.#grace.after(() => {
      for (const slot of removed) this.#slots.give(slot);
      for (const run of runs) this.#runs.give(run, (runBytes(this.#elements, run)?.length ?? 0) / sizes.endpoint);
    });
  }
}
