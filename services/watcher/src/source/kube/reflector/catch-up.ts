import { type Wakeup, waitMs } from "@kpng/process/wait.ts";
import type { KubeConnection } from "../client/connection.ts";
import { currentResourceVersion } from "../request/list-pages.ts";
import type { Reflector } from "./reflector.ts";
import { versionOf } from "./resource-version.ts";

/**
 * Brings a reflector up to a version that a node already has, when the node asks whether this watcher is older than it.
 * Resolves with true if the reflector has the version.
 *
 * A consistent read of one object shows whether the server has the version at all. If no event or bookmark brings it
 * soon, the collection is listed again.
 *
 * `followCurrency` calls it for each reflector. Separate from `Reflector`, whose methods it only combines.
 */
export async function catchUp(
  reflector: Reflector,
  { connection, needed }: { readonly connection: KubeConnection; readonly needed: bigint },
  signal: AbortSignal,
): Promise<boolean> {
  const hasVersion = (): boolean => (reflector.version ?? -1n) >= needed;
  if (hasVersion()) return true;
  // Without a selector: the server would look for one matching object among all of them.
  const request = { ...reflector.resource, labelSelector: undefined, silenceMs: readMs };
  const read = await currentResourceVersion(connection, request, signal);
  const newest = read.kind === "listed" ? versionOf(read.resourceVersion) : undefined;
  if (newest === undefined) return false;
  if (newest < needed) {
    if (newest < (reflector.version ?? 0n)) reflector.requestList("went-back");
    return false;
  }
  if (await becomes(reflector, hasVersion, eventMs, signal)) return true;
  return (await listAgain(reflector, signal)) && hasVersion();
}

/**
 * Lists the collection again, from etcd. Resolves with false if that takes longer than `listMs`. `followCurrency` calls
 * it instead of `catchUp` when a new epoch makes the versions incomparable.
 */
export function listAgain(reflector: Reflector, signal: AbortSignal): Promise<boolean> {
  const before = reflector.listCount;
  reflector.requestList("behind");
  return becomes(reflector, () => reflector.listCount > before, listMs, signal);
}

/** Longest time without a byte of the consistent read, in milliseconds. */
const readMs = 5_000;
/** How long the events that lead to the version may take, in milliseconds. */
const eventMs = 1_000;
/** How long a list may take, in milliseconds. */
const listMs = 15_000;

async function becomes(
  { progress }: { readonly progress: Wakeup },
  isTrue: () => boolean,
  limitMs: number,
  signal: AbortSignal,
): Promise<boolean> {
  const done = new AbortController();
  const either = AbortSignal.any([signal, done.signal]);
  const over = waitMs(limitMs, either).then(() => done.abort());
  while (!isTrue() && !either.aborted) await progress.wait(either);
  done.abort();
  await over;
  return isTrue();
}
