import type { Health } from "@kpng/process/health/health.ts";
import { type ViewClass, viewClassOf } from "../../items/view-target.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import type { Store } from "../../store/store.ts";
import { bucketIndexes } from "../delta/bucket-index.ts";
import { classDigestInSteps } from "../delta/class-digests.ts";
import { zonesOfViews } from "../delta/class-values.ts";
import { chunksByEndpoint, encodeChunkInSteps, packedChunk } from "../delta/service-chunks.ts";
import { roundsOf } from "./rounds.ts";
import { scheduledItems } from "./scheduler.ts";

/** Part of the health of a watcher that is not ready before this work is done. */
const part = "views";

/**
 * Computes what the views of all nodes share, before the watcher is ready: the encoded Services and endpoints, their
 * digests, and the bucket index. Then the first nodes of a new replica get their views, or what they missed, as quickly
 * as later ones. Resolves when it is done, or when `signal` aborts; never rejects.
 *
 * It is done for our own nodes with the default proxy name. What original KPNG clients share is computed for the first
 * of them. Nodes that connect earlier are served at once; then both do parts of the same work.
 *
 * `serveTask` runs it. Separate from `PreparedSnapshots`, which derives what all subscribers of any kind need of each
 * large change.
 */
export async function prepareViews({ store, health, proxyName }: PrepareOptions, signal: AbortSignal): Promise<void> {
  health.setWaiting(part, "waiting for the first complete lists");
  const snapshot = await firstSnapshot(store, signal);
  if (snapshot === undefined) return;
  health.setWaiting(part, "computing what the views of all nodes share");
  for await (const _ of scheduledItems(steps(snapshot, proxyName), signal));
  if (!signal.aborted) health.setReady(part);
}

/** Returns the first complete snapshot that views can be computed of in short pieces; see PreparedSnapshots. */
async function firstSnapshot(store: Store, signal: AbortSignal): Promise<Snapshot | undefined> {
  const rounds = roundsOf(store);
  rounds.forViews();
  if ((await store.next(0, signal)) === undefined) return undefined;
  while (!rounds.snapshot.isSynced && !signal.aborted) {
    await new Promise<void>((resolve) => {
      const done = (): void => {
        rounds.cancelNext(done);
        signal.removeEventListener("abort", done);
        resolve();
      };
      rounds.callNext(done);
      signal.addEventListener("abort", done);
    });
  }
  return signal.aborted ? undefined : rounds.snapshot;
}

function* steps(snapshot: Snapshot, proxyName: string): Iterable<undefined> {
  const common = viewClassOf({ isExtended: true, proxyName }, "");
  const classes: readonly ViewClass[] = zonesOfViews(snapshot).map((zone) => viewClassOf(common, zone));
  for (const viewClass of classes) {
    for (const chunk of chunksByEndpoint(snapshot)) {
      yield* encodeChunkInSteps(chunk, viewClass, true);
      packedChunk(chunk, viewClass);
      yield undefined;
    }
    yield* bucketIndexes.inSteps(snapshot, viewClass);
    yield* classDigestInSteps(snapshot, viewClass);
  }
}

interface PrepareOptions {
  readonly store: Store;
  readonly health: Health;
  /** Proxy name of the nodes that do not ask for one. */
  readonly proxyName: string;
}
