import { getOrMake } from "@kpng/model/collections.ts";
import type { Health } from "@kpng/process/health/health.ts";
import { Wakeup } from "@kpng/process/wait.ts";
import { keysByNode } from "../../items/overlay.ts";
import { serviceStates } from "../../items/service-state.ts";
import { proxyNamesIn, viewClassOf } from "../../items/view-target.ts";
import { changedServices } from "../../store/derived.ts";
import { ShardedMap, shardCount } from "../../store/sharded-map.ts";
import { emptySnapshot, type Snapshot } from "../../store/snapshot.ts";
import type { Store } from "../../store/store.ts";
import { indexesIn, zoneHintedCount, zonesOfViews } from "../delta/class-index.ts";
import { chunksByEndpoint, chunksByService, prepareClass } from "../delta/whole-view.ts";
import { scheduledItems, scheduler } from "./scheduler.ts";

/**
 * Advances all subscribers of a store from one snapshot to the next in rounds. While some of them wait for their turn,
 * the target snapshot stays the same; later changes belong to the next round.
 *
 * If each subscriber advanced to the newest snapshot at its turn, soon no two subscribers would advance between the
 * same two snapshots, and each difference would be computed, encoded and compressed for one subscriber.
 *
 * A change that arrives while no round is in progress starts one immediately. First batches have their share of the
 * thread between two rounds, and during one that takes longer than 100 ms; see Scheduler.
 *
 * A round can only begin with a prepared snapshot: everything that views derive from a snapshot was derived before the
 * first subscriber asks. Few changed Services take some milliseconds. After a list that changes thousands of Services,
 * the snapshot before it remains the target for about a second, while it is derived in steps and the event loop turns
 * between them. A store that serves only relays needs no preparation.
 *
 * *Bound:* one entry for each waiting subscriber, and the values of one further snapshot.
 */
export class Rounds {
  readonly #store: Store;
  readonly #waiting = new Wakeup();
  readonly #onStored = (): void => this.#begin();
  readonly #onDone = (): void => this.#end();
  readonly #onNext = (): void => {
    this.#isInProgress = false;
    if (this.#waiting.waitingCount > 0) this.#begin();
  };
  #hasViews = false;
  #isPreparing = false;
  /** The newest prepared snapshot. */
  #prepared: Snapshot;
  #target: Snapshot;
  /** The snapshot of the last round. */
  #begun: Snapshot | undefined;
  #isInProgress = false;

  constructor(store: Store) {
    this.#store = store;
    this.#prepared = store.snapshot;
    this.#target = store.snapshot;
  }

  /** From now on, prepares snapshots for views of nodes. Call it for each stream of a node. */
  forViews(): void {
    if (this.#hasViews) return;
    this.#hasViews = true;
    this.#prepared = emptySnapshot;
  }

  /** The target snapshot: the one of the round in progress, otherwise the newest that is prepared. */
  get snapshot(): Snapshot {
    if (!this.#isInProgress) this.#target = this.#newest();
    return this.#target;
  }

  /** Calls back once, when the next round begins, unless cancelled. */
  callNext(callback: () => void): void {
    this.#waiting.call(callback);
    if (!this.#isInProgress) this.#store.callNext(this.#onStored);
  }

  cancelNext(callback: () => void): void {
    this.#waiting.cancel(callback);
    if (this.#waiting.waitingCount === 0) this.#store.cancelNext(this.#onStored);
  }

  /** Resolves when the next round begins, or when `signal` aborts. */
  async next(signal: AbortSignal): Promise<void> {
    if (!this.#isInProgress) this.#store.callNext(this.#onStored);
    await this.#waiting.wait(signal);
  }

  #begin(): void {
    if (this.#isInProgress) return;
    const snapshot = this.#newest();
    // Otherwise, the round begins when a newer snapshot is prepared. It does not wait for the newest one of the store:
    // while that keeps changing, no round would ever begin.
    if (snapshot === this.#begun) return;
    this.#begun = snapshot;
    this.#target = snapshot;
    this.#isInProgress = true;
    this.#waiting.wake();
    scheduler.schedule("round", this.#onDone);
  }

  /** All subscribers of the round have had their turn. */
  #end(): void {
    if (this.#store.snapshot !== this.#target) {
      // Requests that have arrived are read first: their subscribers take part in the next round from its start.
      setImmediate(() => setImmediate(this.#onNext));
      return;
    }
    this.#isInProgress = false;
    if (this.#waiting.waitingCount > 0) this.#store.callNext(this.#onStored);
  }

  /** Returns the newest prepared snapshot, and starts to prepare the newest one of the store. */
  #newest(): Snapshot {
    const { snapshot } = this.#store;
    if (this.#isPreparing || snapshot === this.#prepared) return this.#prepared;
    if (!this.#hasViews || changedServices(this.#prepared, snapshot).length <= maxServices) this.#prepared = snapshot;
    else {
      this.#isPreparing = true;
      this.#prepare(preparation(this.#prepared, snapshot)[Symbol.iterator](), snapshot);
    }
    return this.#prepared;
  }

  #prepare(steps: Iterator<undefined>, snapshot: Snapshot): void {
    scheduler.schedule("update", () => {
      if (steps.next().done !== true) {
        this.#prepare(steps, snapshot);
        return;
      }
      this.#isPreparing = false;
      this.#prepared = snapshot;
      this.#begin();
    });
  }
}

/** Changes of more Services are prepared in steps. */
const maxServices = 256;

/** Shards of the maps that one step advances: 80 Services with their slices at 10 000 Services. */
const shardsPerStep = 4;

/**
 * Derives all values of a snapshot in steps of some Services each. The states in between have the revision of
 * `snapshot`, but never existed: nothing may be sent from them. A Service and its slices are always of the same step,
 * because both maps have the same keys.
 */
function* preparation(before: Snapshot, snapshot: Snapshot): Iterable<undefined> {
  for (let count = shardsPerStep; count < shardCount; count += shardsPerStep) {
    yield* deriveAll({
      ...snapshot,
      services: ShardedMap.blend(before.services, snapshot.services, count),
      slicesByService: ShardedMap.blend(before.slicesByService, snapshot.slicesByService, count),
    });
  }
  yield* deriveAll(snapshot);
}

/** Derives everything that views take from a snapshot, and yields after each value. */
function* deriveAll(snapshot: Snapshot): Iterable<undefined> {
  for (const derive of derivations) {
    derive(snapshot);
    yield undefined;
  }
}

const derivations: readonly ((snapshot: Snapshot) => unknown)[] = [
  ...[serviceStates, keysByNode, proxyNamesIn],
  ...[zoneHintedCount, indexesIn, chunksByService, chunksByEndpoint],
];

const roundsByStore = new WeakMap<Store, Rounds>();

/** Returns the rounds of a store. */
export function roundsOf(store: Store): Rounds {
  return getOrMake(roundsByStore, store, () => new Rounds(store));
}

/** Part of the health of a watcher that is not ready before its views are prepared. */
const part = "views";

/**
 * Computes what the views of all nodes share, before the watcher is ready: the encoded Services and endpoints, their
 * digests, and the index by which nodes resume. Then the first nodes of a new replica get their views, or what they
 * missed, as quickly as later ones. Resolves when it is done, or when `signal` aborts; never rejects.
 *
 * It is done for our own nodes with the default proxy name. What original KPNG clients share is computed for the first
 * of them. Nodes that connect earlier are served at once; then both do parts of the same work.
 */
export async function prepareViews(
  { store, health, proxyName }: { readonly store: Store; readonly health: Health; readonly proxyName: string },
  signal: AbortSignal,
): Promise<void> {
  health.setWaiting(part, "waiting for the first complete lists");
  const rounds = roundsOf(store);
  rounds.forViews();
  while (!rounds.snapshot.isSynced && !signal.aborted) await rounds.next(signal);
  health.setWaiting(part, "computing what the views of all nodes share");
  const { snapshot } = rounds;
  for (const zone of zonesOfViews(snapshot)) {
    const viewClass = viewClassOf({ isExtended: true, proxyName }, zone);
    for await (const _ of scheduledItems(prepareClass(snapshot, viewClass), signal));
  }
  if (!signal.aborted) health.setReady(part);
}
