import { BucketDigests } from "@kpng/model/wire/item-digest.ts";
import type { Snapshot } from "../store/snapshot.ts";
import { emptySnapshot } from "../store/snapshot.ts";
import { changedServices, derived } from "./derived.ts";
import { getOrMake } from "./get-or-make.ts";
import { digestOf } from "./item-digests.ts";
import { type Audience, audienceKey } from "./local-units.ts";
import { unitAt } from "./service-units.ts";
import { diffUnits } from "./unit.ts";

/** Digests of all that an audience is told. */
export interface AudienceDigests {
  readonly audience: Audience;
  readonly buckets: BucketDigests;
  /** The exclusive or of them all. */
  readonly total: bigint;
}

/**
 * Returns the digests of what an audience is told of a snapshot.
 *
 * *Cost:* what changed since they were asked for last; everything, for an audience that is new. *Bound:* 8 KiB for each
 * zone that nodes have had and each proxy name that Services have.
 */
export function audienceDigests(snapshot: Snapshot, audience: Audience): AudienceDigests {
  // There is no end of the names that subscribers can make up: only for those that a Service has is anything kept.
  if (!proxyNamesIn(snapshot).has(audience.proxyName)) return emptyDigests(audience);
  return getOrMake(digestsOf(snapshot), audienceKey(audience), () =>
    evolve(emptyDigests(audience), emptySnapshot, snapshot),
  );
}

/** Each audience that anybody asked for goes on with the next snapshot, as long as there are Services for it. */
const digestsOf = derived(new Map<string, AudienceDigests>(), (all, before, snapshot) => {
  const proxyNames = proxyNamesIn(snapshot);
  const kept = [...all].filter(([, { audience }]) => proxyNames.has(audience.proxyName));
  return new Map(kept.map(([key, digests]) => [key, evolve(digests, before, snapshot)]));
});

function emptyDigests(audience: Audience): AudienceDigests {
  return { audience, buckets: new BucketDigests(), total: 0n };
}

function evolve({ audience, buckets, total }: AudienceDigests, before: Snapshot, snapshot: Snapshot): AudienceDigests {
  const next = { audience, buckets: buckets.copy(), total };
  for (const key of changedServices(before, snapshot)) {
    const diff = diffUnits(unitAt(before, key, audience), unitAt(snapshot, key, audience));
    for (const items of [diff.puts, diff.deletes, diff.replaced]) {
      for (const item of items) {
        const digest = digestOf(item);
        next.buckets.toggle(digest);
        next.total ^= digest.hash;
      }
    }
  }
  return next;
}

const proxyNames = new WeakMap<Snapshot["services"], ReadonlySet<string>>();

function proxyNamesIn({ services }: Snapshot): ReadonlySet<string> {
  return getOrMake(proxyNames, services, () => new Set([...services.values()].map(({ proxyName }) => proxyName)));
}
