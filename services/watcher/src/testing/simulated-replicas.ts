import { type PositionKind, positionKinds } from "@kpng/model/forward.ts";
import type { ClusterObjects } from "../source/source.ts";
import type { Snapshot } from "../store/snapshot.ts";
import { Store } from "../store/store.ts";
import { node, service, slice } from "./build.ts";

/**
 * When each kind last changed, and in which life of etcd: a restore begins another one. `store/never-backwards.slow.test.ts`
 * compares the moments that a node saw; this file simulates the cluster and its watchers for that test.
 */
export interface Moments {
  readonly life: Readonly<Record<PositionKind, number>>;
  readonly moment: Readonly<Record<PositionKind, number>>;
}

interface Truth {
  readonly version: bigint;
  readonly moments: Record<PositionKind, number>;
}

/**
 * A cluster with one object of each kind, whose content is the moment of its last change. Versions count as those of
 * etcd; a restore goes back to an earlier version and content, and never repeats a moment.
 */
export class SimulatedCluster {
  #history: Truth[] = [{ version: 1n, moments: { services: 0, slices: 0, nodes: 0 } }];
  #moment = 0;
  life = 0;

  get now(): Truth {
    return this.#history.at(-1) as Truth;
  }

  change(kind: PositionKind): void {
    const { version, moments } = this.now;
    this.#moment += 1;
    this.#history.push({ version: version + 1n, moments: { ...moments, [kind]: this.#moment } });
  }

  /** A write of another kind: the version advances, and nothing else. */
  changeOther(): void {
    const { version, moments } = this.now;
    this.#history.push({ version: version + 1n, moments });
  }

  restore(lostChanges: number): void {
    this.#history = this.#history.slice(0, Math.max(1, this.#history.length - lostChanges));
    this.life += 1;
  }

  /** The next change of a kind after a version; undefined if there is none. */
  next(kind: PositionKind, after: bigint): Truth | undefined {
    const index = this.#history.findLastIndex(({ version }) => version <= after);
    const known = this.#history[index];
    return this.#history.slice(index + 1).find(({ moments }) => moments[kind] !== known?.moments[kind]);
  }
}

/** A watcher of a {@link SimulatedCluster}, with a real store, whose reflectors do what the random history says. */
export class SimulatedReplica {
  readonly #cluster: SimulatedCluster;
  readonly #momentsBySnapshot = new WeakMap<Snapshot, Moments>();
  readonly #watched: Record<PositionKind, bigint> = { services: 0n, slices: 0n, nodes: 0n };
  readonly #moments: { life: Record<PositionKind, number>; moment: Record<PositionKind, number> } = {
    life: { services: 0, slices: 0, nodes: 0 },
    moment: { services: 0, slices: 0, nodes: 0 },
  };
  #isFrozen = false;
  store = new Store();

  constructor(cluster: SimulatedCluster) {
    this.#cluster = cluster;
    for (const kind of positionKinds) this.list(kind);
  }

  set isFrozen(isFrozen: boolean) {
    const wasFrozen = this.#isFrozen;
    this.#isFrozen = isFrozen;
    // As `followServer` does: after a silence, a watch cannot simply go on.
    if (wasFrozen && !isFrozen) for (const kind of positionKinds) this.list(kind);
  }

  get isFrozen(): boolean {
    return this.#isFrozen;
  }

  momentsOf(snapshot: Snapshot): Moments {
    return this.#momentsBySnapshot.get(snapshot) as Moments;
  }

  /** A new process lists everything. */
  restart(): void {
    if (this.#isFrozen) return;
    this.store = new Store();
    for (const kind of positionKinds) this.list(kind);
  }

  list(kind: PositionKind): void {
    if (this.#isFrozen) return;
    const { version, moments } = this.#cluster.now;
    this.#apply(kind, moments[kind], version);
    this.#watched[kind] = version;
    this.store.currency.confirm({ [kind]: version });
  }

  /** The reflector compares versions when it connects, and lists again if the server lost data. */
  noticeRestore(kind: PositionKind): void {
    if (this.#moments.life[kind] !== this.#cluster.life) this.list(kind);
  }

  /** The next event of a kind arrives. */
  watch(kind: PositionKind): void {
    if (this.#isFrozen) return;
    const next = this.#cluster.next(kind, this.#watched[kind]);
    if (next === undefined) return;
    this.#apply(kind, next.moments[kind], next.version);
    this.#watched[kind] = next.version;
    this.store.currency.confirm({ [kind]: next.version });
  }

  /** A bookmark arrives, which is only sent after all events. */
  bookmark(kind: PositionKind): void {
    const { version } = this.#cluster.now;
    if (this.#isFrozen) return;
    if (this.#cluster.next(kind, this.#watched[kind]) !== undefined) return;
    this.#watched[kind] = version;
    this.store.currency.confirm({ [kind]: version });
  }

  #apply(kind: PositionKind, moment: number, version: bigint): void {
    this.#moments.life[kind] = this.#cluster.life;
    this.#moments.moment[kind] = moment;
    const origin = { source: "kube", receivedAtMs: 0, versions: { [kind]: version } };
    this.store.replace(objectsOf(kind, moment), origin);
    const { life, moment: moments } = this.#moments;
    this.#momentsBySnapshot.set(this.store.snapshot, { life: { ...life }, moment: { ...moments } });
  }
}

function objectsOf(kind: PositionKind, moment: number): ClusterObjects {
  switch (kind) {
    case "services":
      return { services: [service({ labels: { moment: String(moment) } })] };
    case "slices":
      return { slices: [slice([], { name: `moment-${moment}` })] };
    default:
      return { nodes: [node("n1", { zone: `moment-${moment}` })] };
  }
}
