import assert from "node:assert/strict";
import { ForwardGate, type PositionKind, positionKinds } from "@kpng/model/forward.ts";
import { makePick, makeRandom, makeRandomBelow } from "@kpng/process/random.ts";
import type { ClusterObjects } from "@kpng/source/source.ts";
import { node, service, slice } from "@kpng/source/testing/build.ts";
import { expect, test } from "vitest";
import type { Snapshot } from "./snapshot.ts";
import { Store } from "./store.ts";

type ByKind = Readonly<Record<PositionKind, number>>;
const none: ByKind = { services: 0, slices: 0, nodes: 0 };

/** When each kind last changed, and in which life of etcd: a restore begins another one. */
interface Moments {
  readonly life: ByKind;
  readonly moment: ByKind;
}

interface Truth {
  readonly version: bigint;
  readonly moments: ByKind;
}

/**
 * A cluster with one object of each kind, whose content is the moment of its last change. Versions count as those of
 * etcd; a restore goes back to an earlier version and content, and never repeats a moment.
 */
class SimulatedCluster {
  #history: Truth[] = [{ version: 1n, moments: none }];
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

/** A watcher of a simulated cluster, with a real store, whose reflectors do what the random history says. */
class SimulatedReplica {
  readonly #cluster: SimulatedCluster;
  readonly moments = new WeakMap<Snapshot, Moments>();
  readonly #watched: Record<PositionKind, bigint> = { services: 0n, slices: 0n, nodes: 0n };
  #life: ByKind = none;
  #moment: ByKind = none;
  isFrozen = false;
  store = new Store();

  constructor(cluster: SimulatedCluster) {
    this.#cluster = cluster;
    for (const kind of positionKinds) this.list(kind);
  }

  freeze(isFrozen: boolean): void {
    const wasFrozen = this.isFrozen;
    this.isFrozen = isFrozen;
    // As the probe of `kubeSource` does: after a silence, a watch cannot simply go on.
    if (wasFrozen) for (const kind of positionKinds) this.list(kind);
  }

  /** A new process lists everything. */
  restart(): void {
    if (this.isFrozen) return;
    this.store = new Store();
    for (const kind of positionKinds) this.list(kind);
  }

  list(kind: PositionKind): void {
    if (this.isFrozen) return;
    const { version, moments } = this.#cluster.now;
    this.#apply(kind, moments[kind], version);
    this.#watched[kind] = version;
    this.store.currency.confirm({ [kind]: version });
  }

  /** The reflector compares versions when it connects, and lists again if the server lost data. */
  noticeRestore(kind: PositionKind): void {
    if (this.#life[kind] !== this.#cluster.life) this.list(kind);
  }

  /** The next event of a kind arrives. */
  watch(kind: PositionKind): void {
    if (this.isFrozen) return;
    const next = this.#cluster.next(kind, this.#watched[kind]);
    if (next === undefined) return;
    this.#apply(kind, next.moments[kind], next.version);
    this.#watched[kind] = next.version;
    this.store.currency.confirm({ [kind]: next.version });
  }

  /** A bookmark arrives, which is only sent after all events. */
  bookmark(kind: PositionKind): void {
    const { version } = this.#cluster.now;
    if (this.isFrozen) return;
    if (this.#cluster.next(kind, this.#watched[kind]) !== undefined) return;
    this.#watched[kind] = version;
    this.store.currency.confirm({ [kind]: version });
  }

  #apply(kind: PositionKind, moment: number, version: bigint): void {
    this.#life = { ...this.#life, [kind]: this.#cluster.life };
    this.#moment = { ...this.#moment, [kind]: moment };
    const origin = { source: "kube", receivedAtMs: 0, versions: { [kind]: version } };
    this.store.replace(objectsOf(kind, moment), origin);
    this.moments.set(this.store.snapshot, { life: this.#life, moment: this.#moment });
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

const stepCount = 400;
const acceptAfterMs = 60_000;

interface Outcome {
  /** Older states that a node applied at once. */
  readonly violations: readonly string[];
  readonly acceptedCount: number;
  /** True if the nodes have the newest state some time after all faults ended. */
  readonly isCurrentInTheEnd: boolean;
}

/** Nodes that change replicas at random, of which some are frozen, restarted, or lose data with etcd. */
function play(seed: number, replicaCount: number, hasGate: boolean): Outcome {
  const random = makeRandom(seed);
  const below = makeRandomBelow(random);
  const pick = makePick(random);
  const cluster = new SimulatedCluster();
  const replicas = Array.from({ length: replicaCount }, () => new SimulatedReplica(cluster));
  const anyReplica = (): SimulatedReplica => pick(...replicas);
  let nowMs = 0;
  const violations: string[] = [];
  let acceptedCount = 0;
  const nodes = Array.from({ length: 3 }, () => ({
    gate: new ForwardGate({ acceptAfterMs, nowMs: () => nowMs }),
    replica: anyReplica(),
    snapshot: undefined as Snapshot | undefined,
    moments: undefined as Moments | undefined,
  }));
  const churn = (): void => {
    if (below(2) === 0) cluster.change(pick(...positionKinds));
    else cluster.changeOther();
  };
  const receive = (node: (typeof nodes)[number]): void => {
    const { replica, gate } = node;
    const { snapshot } = replica.store;
    if (snapshot === node.snapshot) return;
    const moments = replica.moments.get(snapshot) ?? node.moments;
    // A stream says at its start whether its watcher is stale.
    const isStale = node.snapshot === undefined && replica.isFrozen;
    const isUnchanged = (): boolean =>
      positionKinds.every((kind) => node.moments?.moment[kind] === moments?.moment[kind]);
    const offer = { position: snapshot.position, isStale, isUnchanged };
    const admission = hasGate ? gate.admit(offer) : undefined;
    const verdict = admission?.verdict ?? "apply";
    admission?.applied();
    if (verdict === "refuse") {
      node.replica = anyReplica();
      node.snapshot = undefined;
      return;
    }
    if (verdict === "accept") acceptedCount += 1;
    else if (node.moments !== undefined && isOlder(moments, node.moments)) {
      violations.push(`${JSON.stringify(node.moments)} → ${JSON.stringify(moments)}`);
    }
    Object.assign(node, { snapshot, moments });
  };
  const step = (isFaulty: boolean): void => {
    nowMs += below(4_000);
    for (let count = below(4); count > 0; count--) churn();
    for (const replica of replicas) {
      for (const kind of positionKinds) {
        for (let count = below(5); count > 0; count--) replica.watch(kind);
        if (below(4) === 0) replica.bookmark(kind);
        if (below(50) === 0) replica.list(kind);
      }
      const isLast = replicas.every((other) => other === replica || other.isFrozen);
      if (isFaulty && below(20) === 0) replica.freeze(!replica.isFrozen && !isLast);
      for (const kind of positionKinds) replica.noticeRestore(kind);
      if (isFaulty && below(40) === 0) replica.restart();
    }
    if (isFaulty && below(80) === 0) {
      cluster.restore(1 + below(pick(20, 300)));
      // The API servers restart with etcd, so the watches of all connected replicas end.
      for (const replica of replicas) for (const kind of positionKinds) replica.noticeRestore(kind);
    }
    for (const node of nodes) {
      if (below(8) === 0) Object.assign(node, { replica: anyReplica(), snapshot: undefined });
      receive(node);
    }
  };
  for (let count = 0; count < stepCount; count++) step(true);
  for (const replica of replicas) {
    replica.freeze(false);
    for (const kind of positionKinds) replica.noticeRestore(kind);
  }
  for (let count = 0; count < 200; count++) step(false);
  for (const replica of replicas) for (const kind of positionKinds) replica.list(kind);
  // A list without a change makes no revision: its version counts in the position of the next one.
  cluster.change("services");
  for (const replica of replicas) replica.list("services");
  for (const node of nodes) receive(node);
  const newest = cluster.now.moments;
  const isCurrentInTheEnd = nodes.every(({ moments }) =>
    positionKinds.every((kind) => moments?.moment[kind] === newest[kind]),
  );
  return { violations, acceptedCount, isCurrentInTheEnd };
}

function isOlder(next: Moments | undefined, before: Moments): boolean {
  return positionKinds.some((kind) => {
    if (next === undefined) return true;
    if (next.moment[kind] === before.moment[kind]) return false;
    if (next.life[kind] !== before.life[kind]) return next.life[kind] < before.life[kind];
    return next.moment[kind] < before.moment[kind];
  });
}

const firstSeed = Number(process.env.SEED ?? Math.floor(Math.random() * 1e6));

test.each([2, 3])("no node goes back to an older state within the time, with %i replicas", (replicaCount) => {
  let acceptedCount = 0;
  for (let seed = firstSeed; seed < firstSeed + (Number(process.env.SEEDS) || 10); seed++) {
    const outcome = play(seed, replicaCount, true);
    acceptedCount += outcome.acceptedCount;
    expect(outcome.violations, `SEED=${seed}`).toEqual([]);
    assert.ok(outcome.isCurrentInTheEnd, `SEED=${seed}: a node does not have the newest state`);
  }
  expect(acceptedCount, `SEED=${firstSeed}: no node accepted an older state`).toBeGreaterThan(0);
});

test("in the same histories, nodes without a gate do go back", () => {
  const { violations } = play(firstSeed, 2, false);
  expect(violations.length, `SEED=${firstSeed}`).toBeGreaterThan(0);
});
