import { ShardedMap, shardCount } from "./sharded-map.ts";
import type { Snapshot } from "./snapshot.ts";

/** Shards of the maps that one step advances: 80 Services with their slices at 10 000 Services. */
const shardsPerStep = 4;

/**
 * Yields states that lead from one snapshot to another in steps of some Services each; the last one is `snapshot`
 * itself. `PreparedSnapshots` derives values from them in turn, so that a list of 10 000 Services is not one long piece
 * of work.
 *
 * The states in between have the revision of `snapshot`, but never existed: nothing may be sent from them. A Service
 * and its slices are always of the same step, because both maps have the same keys.
 *
 * *Cost:* 128 steps, each of 1 024 pointers and the number of shards.
 *
 * Separate from `PreparedSnapshots`, which decides when to take a step.
 */
export function* snapshotSteps(before: Snapshot, snapshot: Snapshot): Iterable<Snapshot> {
  for (let count = shardsPerStep; count < shardCount; count += shardsPerStep) {
    yield {
      ...snapshot,
      services: ShardedMap.blend(before.services, snapshot.services, count),
      slicesByService: ShardedMap.blend(before.slicesByService, snapshot.slicesByService, count),
    };
  }
  yield snapshot;
}
