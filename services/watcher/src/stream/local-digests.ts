import { getOrMake } from "@kpng/model/get-or-make.ts";
import { BucketDigests } from "@kpng/model/wire/item-digest.ts";
import type { Snapshot } from "../store/snapshot.ts";
import { emptySnapshot } from "../store/snapshot.ts";
import { choosingNode } from "../view/node.ts";
import { changedServices, derived } from "./derived.ts";
import { digestOf } from "./item-digests.ts";
import { localDelta } from "./local-delta.ts";
import { type Audience, audienceKey, audienceOf, type LocalRequest, nodeItems } from "./local-units.ts";
import { isNodeChanged } from "./node-delta.ts";
import { type OwnUnit, ownDigest, ownUnitAt, ownUnits } from "./own-units.ts";
import type { Item } from "./projection.ts";
import { unitAt } from "./service-units.ts";
import { diffUnits, digestOfItems } from "./unit.ts";

/**
 * The exclusive or of the digests of all that an audience is told of a snapshot.
 *
 * *Cost:* what changed since it was asked for last; everything, for an audience that is new.
 */
export const audienceDigest = ofAudiences(
  () => 0n,
  (digest, changed) => changed.reduce((sum, item) => sum ^ digestOf(item).hash, digest),
);

/** The same for each bucket by itself. *Bound:* 8 KiB for each audience. */
export const audienceBuckets = ofAudiences(
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
function ofAudiences<T>(
  makeEmpty: () => T,
  toggle: (value: T, items: readonly Item[]) => T,
): (snapshot: Snapshot, audience: Audience) => T {
  const evolve = (value: T, audience: Audience, before: Snapshot, snapshot: Snapshot): T => {
    const changed = changedServices(before, snapshot).flatMap((key) => {
      const { puts, deletes, replaced } = diffUnits(unitAt(before, key, audience), unitAt(snapshot, key, audience));
      return [...puts, ...deletes, ...replaced];
    });
    return changed.length === 0 ? value : toggle(value, changed);
  };
  // Each audience that anybody asked for goes on with the next snapshot, as long as there are Services for it.
  const valuesOf = derived(
    new Map<string, { readonly audience: Audience; readonly value: T }>(),
    (all, before, snapshot) => {
      const proxyNames = proxyNamesIn(snapshot);
      const kept = [...all].filter(([, { audience }]) => proxyNames.has(audience.proxyName));
      return new Map(
        kept.map(([key, { audience, value }]) => [key, { audience, value: evolve(value, audience, before, snapshot) }]),
      );
    },
  );
  return (snapshot, audience) => {
    // There is no end of the names that subscribers can make up: only for those that a Service has is anything kept.
    if (!proxyNamesIn(snapshot).has(audience.proxyName)) return makeEmpty();
    const make = (): T => evolve(makeEmpty(), audience, emptySnapshot, snapshot);
    return getOrMake(valuesOf(snapshot), audienceKey(audience), () => ({ audience, value: make() })).value;
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
  readonly #request: LocalRequest;
  #last:
    | { readonly snapshot: Snapshot; readonly zone: string; readonly own: bigint; readonly node: bigint }
    | undefined;

  constructor(request: LocalRequest) {
    this.#request = request;
  }

  /** The exclusive or of the digests of all items of the view. *Cost:* the node's own endpoints of what changed. */
  at(snapshot: Snapshot): bigint {
    const node = choosingNode(snapshot, this.#request.nodeName);
    if (this.#last?.snapshot !== snapshot) this.#advance(snapshot);
    const { own, node: item } = this.#last ?? { own: 0n, node: 0n };
    return audienceDigest(snapshot, audienceOf(this.#request, node.zone)) ^ own ^ item;
  }

  /** Takes over what is known of a snapshot already. */
  learn(snapshot: Snapshot, units: readonly OwnUnit[]): void {
    const { zone } = choosingNode(snapshot, this.#request.nodeName);
    this.#last = { snapshot, zone, own: digestOfOwn(units), node: this.#nodeDigest(snapshot) };
  }

  #advance(snapshot: Snapshot): void {
    const last = this.#last;
    const request = this.#request;
    const node = choosingNode(snapshot, request.nodeName);
    if (last?.zone !== node.zone) {
      this.learn(snapshot, ownUnits(snapshot, request, node));
      return;
    }
    let { own } = last;
    for (const key of localDelta(last.snapshot, snapshot).keysByNode.get(node.name) ?? []) {
      for (const side of [last.snapshot, snapshot]) {
        const unit = ownUnitAt(side, key, request, node, true);
        if (unit !== undefined) own ^= ownDigest(unit, true);
      }
    }
    const isChanged = isNodeChanged(last.snapshot, snapshot, node.name);
    this.#last = { snapshot, zone: node.zone, own, node: isChanged ? this.#nodeDigest(snapshot) : last.node };
  }

  #nodeDigest(snapshot: Snapshot): bigint {
    const { wantsNode, nodeName } = this.#request;
    return wantsNode ? digestOfItems(nodeItems(snapshot, nodeName)) : 0n;
  }
}

function digestOfOwn(units: readonly OwnUnit[]): bigint {
  return units.reduce((digest, unit) => digest ^ ownDigest(unit, false), 0n);
}
