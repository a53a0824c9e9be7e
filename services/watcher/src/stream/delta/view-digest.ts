import { getOrMake } from "@kpng/model/get-or-make.ts";
import { BucketDigests } from "@kpng/model/wire/item-digest.ts";
import type { Item } from "../../items/item.ts";
import { digestOf } from "../../items/item-digests.ts";
import { type NodeViewRequest, nodeItems, type ViewClass } from "../../items/node-view-items.ts";
import { type OwnUnit, ownDigest, ownUnitAt, ownUnits } from "../../items/own-units.ts";
import { diffServiceItems, xorOfDigests } from "../../items/service-items.ts";
import { classItemsAt } from "../../items/service-units.ts";
import type { ViewTarget } from "../../items/view-target.ts";
import { changedServices, derived } from "../../store/derived.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { emptySnapshot } from "../../store/snapshot.ts";
import { isNodeChanged } from "./node-delta.ts";
import { snapshotDelta } from "./snapshot-delta.ts";

/**
 * The exclusive or of the digests of all that an audience is told of a snapshot.
 *
 * *Cost:* what changed since it was asked for last; everything, for an audience that is new.
 */
export const classDigest = perClass(
  () => 0n,
  (digest, changed) => changed.reduce((sum, item) => sum ^ digestOf(item).hash, digest),
);

/** The same for each bucket by itself. *Bound:* 8 KiB for each audience. */
export const classBuckets = perClass(
  () => new BucketDigests(),
  (digests, changed) => {
    const next = digests.copy();
    for (const item of changed) next.toggle(digestOf(item));
    return next;
  },
);

/**
 * Something that is made of all items of an audience by toggling them one by one: `toggle` is given those that came, went
 * or were replaced, and must not change what it is given.
 *
 * *Bound:* one for each zone that nodes have had and each proxy name that Services have.
 */
function perClass<T>(
  makeEmpty: () => T,
  toggle: (value: T, items: readonly Item[]) => T,
): (snapshot: Snapshot, viewClass: ViewClass) => T {
  const evolve = (value: T, viewClass: ViewClass, before: Snapshot, snapshot: Snapshot): T => {
    const changed = changedServices(before, snapshot).flatMap((key) => {
      const { puts, deletes, replaced } = diffServiceItems(
        classItemsAt(before, key, viewClass),
        classItemsAt(snapshot, key, viewClass),
      );
      return [...puts, ...deletes, ...replaced];
    });
    return changed.length === 0 ? value : toggle(value, changed);
  };
  // Each audience that anybody asked for goes on with the next snapshot, as long as there are Services for it.
  const valuesOf = derived(
    new Map<string, { readonly viewClass: ViewClass; readonly value: T }>(),
    (all, before, snapshot) => {
      const proxyNames = proxyNamesIn(snapshot);
      const kept = [...all].filter(([, { viewClass }]) => proxyNames.has(viewClass.proxyName));
      return new Map(
        kept.map(([key, { viewClass, value }]) => [
          key,
          { viewClass, value: evolve(value, viewClass, before, snapshot) },
        ]),
      );
    },
  );
  return (snapshot, viewClass) => {
    const values = valuesOf(snapshot);
    const held = values.get(viewClass.key);
    if (held !== undefined) return held.value;
    // There is no end of the names that subscribers can make up: only for those that a Service has is anything kept.
    if (!proxyNamesIn(snapshot).has(viewClass.proxyName)) return makeEmpty();
    const value = evolve(makeEmpty(), viewClass, emptySnapshot, snapshot);
    values.set(viewClass.key, { viewClass, value });
    return value;
  };
}

const proxyNames = new WeakMap<Snapshot["services"], ReadonlySet<string>>();

/** Of the Services. */
export function proxyNamesIn({ services }: Snapshot): ReadonlySet<string> {
  return getOrMake(proxyNames, services, () => new Set([...services.values()].map(({ proxyName }) => proxyName)));
}

/**
 * The digest of one subscriber's view, from snapshot to snapshot.
 *
 * *Bound:* a reference to the snapshot that it was asked for last.
 */
export class ViewDigest {
  readonly #request: NodeViewRequest;
  #snapshot: Snapshot | undefined;
  #target: ViewTarget | undefined;
  /** What the node's own endpoints make of its audience's digest. */
  #own = 0n;
  /** Of what it is told of itself. */
  #node = 0n;

  constructor(request: NodeViewRequest) {
    this.#request = request;
  }

  /** The exclusive or of the digests of all items of the view. *Cost:* the node's own endpoints of what changed. */
  at(snapshot: Snapshot, target: ViewTarget): bigint {
    if (this.#snapshot !== snapshot) this.#advance(snapshot, target);
    return classDigest(snapshot, target.viewClass) ^ this.#own ^ this.#node;
  }

  /** Takes over what is known of a snapshot already. */
  learn(snapshot: Snapshot, target: ViewTarget, units: readonly OwnUnit[]): void {
    this.#own = units.reduce((sum, unit) => sum ^ ownDigest(unit, false), 0n);
    this.#node = this.#nodeDigest(snapshot);
    this.#snapshot = snapshot;
    this.#target = target;
  }

  #advance(snapshot: Snapshot, target: ViewTarget): void {
    const before = this.#snapshot;
    if (before === undefined || this.#target !== target) {
      this.learn(snapshot, target, ownUnits(snapshot, target));
      return;
    }
    const ownKeys = snapshotDelta(before, snapshot).keysByNode.get(target.node.name);
    for (const key of ownKeys ?? []) {
      for (const side of [before, snapshot]) {
        const unit = ownUnitAt(side, key, target, true);
        if (unit !== undefined) this.#own ^= ownDigest(unit, true);
      }
    }
    if (isNodeChanged(before, snapshot, target.node.name)) this.#node = this.#nodeDigest(snapshot);
    this.#snapshot = snapshot;
  }

  #nodeDigest(snapshot: Snapshot): bigint {
    const { wantsNode, nodeName } = this.#request;
    return wantsNode ? xorOfDigests(nodeItems(snapshot, nodeName)) : 0n;
  }
}
