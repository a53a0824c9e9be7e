import { type Wakeup, waitMs } from "@kpng/process/wait.ts";
import type { KubeConnection } from "../client/connection.ts";
import { currentResourceVersion } from "../request/list-pages.ts";
import type { Reflector } from "./reflector.ts";
import { versionOf } from "./resource-version.ts";

/**
 * Brings a reflector up to a version that a node already has. It is needed when a node asks whether the state of this
 * watcher is older than its own.
 *
 * A consistent read of one object shows whether the server has the version at all. If no event or bookmark brings it
 * soon, the collection is listed again. Resolves with true if the reflector has the version.
 *
 * `followCurrency` calls it for each reflector. Separate from `Reflector`, whose methods it only combines.
 */
export async function catchUp(
  reflector: Reflector,
  { connection, needed, readMs = 5_000, listMs = 15_000, eventMs = 1_000 }: CatchUpOptions,
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
  return listAgain(reflector, listMs, signal).then((isListed) => isListed && hasVersion());
}

/** Lists the collection again, from etcd. Resolves with false if that takes longer than `listMs` milliseconds. */
export function listAgain(reflector: Reflector, listMs: number, signal: AbortSignal): Promise<boolean> {
  const before = reflector.listCount;
  reflector.requestList("behind");
  return becomes(reflector, () => reflector.listCount > before, listMs, signal);
}

/** Parameters of {@link catchUp}. */
export interface CatchUpOptions {
  readonly connection: KubeConnection;
  readonly needed: bigint;
  /** Longest time without a byte of the consistent read, in milliseconds. Default 5 000. */
  readonly readMs?: number | undefined;
  /** How long the events that lead to the version may take, in milliseconds. Default 1 000. */
  readonly eventMs?: number | undefined;
  /** How long a list may take, in milliseconds. Default 15 000. */
  readonly listMs?: number | undefined;
}

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
