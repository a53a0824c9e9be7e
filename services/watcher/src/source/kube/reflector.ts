import { Backoff, type BackoffOptions } from "@kpng/process/clock.ts";
import { waitMs } from "@kpng/process/wait.ts";
import type { KubeConnection, RequestFailure, Resource } from "./connection.ts";
import { currentResourceVersion, isWatchListRefusal, listPages, streamList } from "./list.ts";
import { type WatchEnd, type WatchEvent, watchOnce } from "./watch.ts";

/**
 * Keeps a handler in sync with one collection of the API server, like client-go's reflector.
 *
 * | State | Does | Next |
 * |---|---|---|
 * | list | lists until a list is complete and applied | watch |
 * | watch | watches from where the list or the previous watch ended | list after an expired history (410), two consecutive failures or a request; check after a lost connection |
 * | check | compares the server's resourceVersion with ours | list if the server's is older; else watch |
 *
 * Held deletions (see `ObjectCache`) do not stop the watch: a timer requests the list that confirms or refutes them.
 *
 * It never gives up, detects watches that die silently, and never applies part of a list.
 */
export class Reflector {
  readonly #options: ReflectorOptions;
  readonly #backoff: Backoff;
  #usesWatchList: boolean;
  /** False after a paged list expired between two pages: the next list is requested in one response. */
  #usesPages = true;
  /** A list from etcd is needed, although the watch can continue. Only a list that begins later satisfies it. */
  #mustList = false;
  /** Set while the handler holds deletions, until the list that confirms or refutes them begins. */
  #confirmTimer: NodeJS.Timeout | undefined;
  /** The next list confirms or refutes the held deletions. */
  #mustConfirm = false;
  /** Ends the current watch. */
  #stopWatch: AbortController | undefined;
  /** The connection failed, so the server may have been replaced by one with an older state. */
  #mustCheckVersion = false;
  #failedWatches = 0;
  #lostStreams = 0;

  constructor(options: ReflectorOptions) {
    this.#options = options;
    this.#backoff = new Backoff(options.backoff);
    this.#usesWatchList = options.usesWatchList ?? true;
  }

  /** True once a list was complete. */
  isListed = false;
  /**
   * False while the objects may not be those of the server: until a requested list, or one after the versions went back,
   * has ended, and while the handler holds deletions.
   */
  isCurrent = true;
  /** The collection is applied up to this version; undefined while a list is needed. */
  resourceVersion: string | undefined;
  /** Why the last request failed; undefined since a list or watch succeeded. */
  failure: RequestFailure | undefined;

  /** Ends the current watch and lists again. The list is read from etcd: a streamed one would come from a cache. */
  requestList(reason: RelistReason): void {
    this.#mustList = true;
    this.isCurrent = false;
    this.#options.observer.relisting(reason);
    this.#stopWatch?.abort();
  }

  /** Runs until the signal aborts. Errors: only those that the handler throws. */
  async run(signal: AbortSignal): Promise<void> {
    signal.addEventListener("abort", () => clearTimeout(this.#confirmTimer), { once: true });
    while (!signal.aborted) {
      if (this.resourceVersion === undefined || this.#mustList) await this.#list(signal);
      else if (this.#mustCheckVersion) await this.#checkVersion(this.resourceVersion, signal);
      else await this.#watch(this.resourceVersion, signal);
    }
  }

  async #list(signal: AbortSignal): Promise<void> {
    const { connection, handler, resource, observer, confirmMs = 31_000 } = this.#options;
    const { pageSize = 500, listSilenceMs: silenceMs = 60_000, backoff } = this.#options;
    const startedMs = performance.now();
    const [isRequested, isConfirming] = [this.#mustList, this.#mustConfirm];
    [this.#mustList, this.#mustConfirm] = [false, false];
    const list = handler.beginList();
    let objectCount = 0;
    const add = (object: unknown): void => {
      list.add(object);
      objectCount += 1;
    };
    const { remove } = list;
    const pages = { pageSize: this.#usesPages ? pageSize : undefined, retryMs: backoff?.minMs };
    const isStreamed = this.#usesWatchList && !isRequested;
    const request = { ...resource, ...pages, silenceMs };
    const end = isStreamed
      ? await streamList(connection, request, { add, remove }, signal)
      : await listPages(connection, request, add, signal);
    if (signal.aborted) return;
    if (end.kind !== "listed") {
      this.#mustList ||= isRequested;
      this.#mustConfirm ||= isConfirming;
      return this.#listFailed(end, isStreamed, signal);
    }
    this.#usesPages = true;
    this.#mustCheckVersion = false;
    this.#lostStreams = 0;
    this.#failedWatches = 0;
    const held = list.complete(isConfirming, end.resourceVersion);
    this.resourceVersion = end.resourceVersion;
    this.isListed = true;
    this.isCurrent = held === undefined && !this.#mustList;
    this.failure = undefined;
    observer.listed(objectCount, performance.now() - startedMs);
    if (held === undefined) {
      clearTimeout(this.#confirmTimer);
      [this.#confirmTimer, this.#mustConfirm] = [undefined, false];
      return;
    }
    observer.heldBack(held, confirmMs);
    // Meanwhile the watch goes on: additions and updates are not held. Another list before then confirms nothing.
    this.#confirmTimer ??= setTimeout(() => {
      this.#mustConfirm = true;
      this.requestList("braked");
    }, confirmMs);
  }

  async #listFailed(failure: RequestFailure, isStreamed: boolean, signal: AbortSignal): Promise<void> {
    if (!isStreamed) this.#usesPages = failure.kind !== "expired";
    else if (isWatchListRefusal(failure) || (failure.kind === "lost" && ++this.#lostStreams === maxLostStreams)) {
      this.#usesWatchList = false;
      return this.#options.observer.watchListRefused(failure);
    }
    await this.#failed(failure, signal);
  }

  async #checkVersion(current: string, signal: AbortSignal): Promise<void> {
    const { connection, resource, listSilenceMs: silenceMs = 60_000 } = this.#options;
    // Without a selector: the server would look for one matching object among all of them.
    const request = { ...resource, labelSelector: undefined, silenceMs };
    const end = await currentResourceVersion(connection, request, signal);
    if (signal.aborted) return;
    if (end.kind !== "listed") return this.#failed(end, signal);
    this.#mustCheckVersion = false;
    if (isOlder(end.resourceVersion, current)) this.#relist("went-back");
  }

  async #watch(resourceVersion: string, signal: AbortSignal): Promise<void> {
    const { connection, resource, watchSeconds = 30, overdueMs = 10_000 } = this.#options;
    const timeoutSeconds = Math.ceil(watchSeconds * (1 + Math.random()));
    const silenceMs = timeoutSeconds * 1_000 + overdueMs;
    const startedMs = performance.now();
    const stop = new AbortController();
    this.#stopWatch = stop;
    const receive = (events: readonly WatchEvent[], receivedAtMs: number): void => {
      const isInOrder = this.#receive(events, receivedAtMs);
      if (!isInOrder) stop.abort();
    };
    const end = await watchOnce(
      connection,
      { ...resource, query: { resourceVersion }, timeoutSeconds, silenceMs },
      { opened: () => this.#opened(), receive },
      AbortSignal.any([signal, stop.signal]),
    );
    if (!signal.aborted) await this.#watchEnded(end, performance.now() - startedMs >= minHealthyMs, signal);
  }

  #opened(): void {
    this.failure = undefined;
    this.#options.observer.progressed({ put: 0, delete: 0 });
  }

  /** Returns false if the server's state is older than ours. A list is then needed. */
  #receive(events: readonly WatchEvent[], receivedAtMs: number): boolean {
    const { handler, observer } = this.#options;
    const changes: WatchEvent[] = [];
    let isInOrder = true;
    for (const event of events) {
      isInOrder = !isOlder(event.resourceVersion, this.resourceVersion ?? "");
      if (!isInOrder) break;
      this.resourceVersion = event.resourceVersion;
      if (event.kind !== "bookmark") changes.push(event);
    }
    this.#failedWatches = 0;
    this.#backoff.reset();
    const deletedCount = changes.filter(({ kind }) => kind === "delete").length;
    observer.progressed({ put: changes.length - deletedCount, delete: deletedCount });
    if (changes.length > 0) handler.apply(changes, receivedAtMs);
    if (this.resourceVersion !== undefined) handler.progressed?.(this.resourceVersion);
    if (!isInOrder) this.#relist("went-back");
    return isInOrder;
  }

  async #watchEnded(end: WatchEnd, wasHealthy: boolean, signal: AbortSignal): Promise<void> {
    if (end.kind === "closed") {
      this.#options.observer.watchClosed();
      if (wasHealthy) this.#backoff.reset();
      else await waitMs(this.#backoff.nextMs(), signal);
      this.#mustCheckVersion = !wasHealthy;
      return;
    }
    this.#mustCheckVersion = true;
    if (wasHealthy && end.kind === "lost") this.#backoff.reset();
    if (countsAsFailed(end)) this.#failedWatches += 1;
    if (end.kind === "expired") this.#relist("expired");
    else if (this.#failedWatches >= maxFailedWatches) this.#relist(end.kind === "silent" ? "silent" : "refused");
    await this.#failed(end, signal);
  }

  #relist(reason: RelistReason): void {
    this.resourceVersion = undefined;
    if (reason === "went-back") this.isCurrent = false;
    this.#failedWatches = 0;
    this.#options.observer.relisting(reason);
  }

  async #failed(failure: RequestFailure, signal: AbortSignal): Promise<void> {
    const { isOptional = false, observer } = this.#options;
    const isAbsent = failure.kind === "refused" && (failure.status === 404 || failure.status === 403);
    const retryMs = isOptional && isAbsent ? absentRetryMs : this.#backoff.nextMs();
    observer.failed(failure, retryMs);
    if (failure.kind !== "expired") this.failure = failure;
    await waitMs(retryMs, signal);
  }
}

/** A watch that stayed open this long is not a failure, even without events. In milliseconds. */
const minHealthyMs = 1_000;
/** Consecutive watches that end in silence or a refusal before the collection is listed again. */
const maxFailedWatches = 2;
/** Consecutive streamed lists that break before paged lists are used. */
const maxLostStreams = 2;
/** Retry delay for an optional kind that the server does not have, in milliseconds. */
const absentRetryMs = 600_000;

/** True if a new list may help. It would not where a permission is missing or the server is overloaded. */
function countsAsFailed(failure: RequestFailure): boolean {
  if (failure.kind === "refused") return ![401, 403, 429, 503].includes(failure.status);
  return failure.kind === "silent" || failure.kind === "garbled";
}

/**
 * Limits and delays of a `Reflector`, which keeps our copy of one collection of the API server up to date. The defaults
 * are those of the program; tests shorten them.
 */
export interface ReflectorTiming {
  /** Objects per page of a list. Default 500. */
  readonly pageSize?: number | undefined;
  /** Longest time without a byte during a list, in milliseconds. Default 60 000. */
  readonly listSilenceMs?: number | undefined;
  /**
   * Shortest duration after which the server ends a watch, in seconds; each watch gets a random one up to twice as
   * long. Default 30.
   *
   * A watch of a kind that does not change receives no data, not even bookmarks. Only the missing end distinguishes a
   * dead watch from a quiet one. The next watch continues where the previous one ended.
   */
  readonly watchSeconds?: number | undefined;
  /** Time after the requested end at which a silent watch counts as dead, in milliseconds. Default 10 000. */
  readonly overdueMs?: number | undefined;
  /** Delay before the list that can confirm held deletions, in milliseconds. Default 31 000. */
  readonly confirmMs?: number | undefined;
  /** Delays after failures. Default 0.8 to 30 s. */
  readonly backoff?: BackoffOptions | undefined;
  /** Use streamed lists until the server refuses one. Default true. */
  readonly usesWatchList?: boolean | undefined;
}

/** Collection that a `Reflector` follows, and where its objects and events go. */
interface ReflectorOptions extends ReflectorTiming {
  readonly resource: Resource;
  readonly connection: KubeConnection;
  readonly handler: CollectionHandler;
  readonly observer: ReflectorObserver;
  /** True if the server may lack the kind, or deny access to it. It is then retried every ten minutes only. */
  readonly isOptional?: boolean | undefined;
}

/**
 * Receives the objects of one collection of the Kubernetes API, such as all Services. `ObjectCache` (Services,
 * EndpointSlices, Nodes) and `ServiceCIDRCache` implement it.
 */
export interface CollectionHandler {
  /** Starts a list. A list that is never completed has no effect. */
  beginList(): IncomingList;
  /**
   * Applies puts and deletes of a watch in their order; bookmarks are not among them. `receivedAtMs` is when they were
   * received, in milliseconds since 1970, with fractions.
   */
  apply(events: readonly WatchEvent[], receivedAtMs: number): void;
  /** Called after each batch of events, also of bookmarks alone: no further changes up to this resourceVersion. */
  progressed?(resourceVersion: string): void;
}

/** A list that is being received. Its objects take effect together, when it is complete. */
export interface IncomingList {
  add(object: unknown): void;
  /** Removes an object that was deleted after it was added. */
  remove(key: string): void;
  /**
   * Ends the list and applies it. Returns the deletions that it holds, if the list would delete nearly everything.
   * `isConfirming`: deletions are held, and this list was read from etcd to confirm or refute them, so all of it
   * applies. `resourceVersion` is that of the list.
   */
  complete(isConfirming: boolean, resourceVersion: string): HeldBack | undefined;
}

/** Deletions that are held, because a list lacks `deletedCount` of `currentCount` objects. */
export interface HeldBack {
  readonly currentCount: number;
  readonly deletedCount: number;
}

/** Returns a resource version as a number; undefined for a text that cannot be compared. */
export function versionOf(resourceVersion: string): bigint | undefined {
  return /^\d{1,19}$/.test(resourceVersion) ? BigInt(resourceVersion) : undefined;
}

/**
 * True if resource version `next` is certainly older than `current`. A server returns such a version only after it lost
 * data: its etcd was restored from a backup or replaced.
 *
 * Source: KEP-5504, resource versions are integers that can be compared within a kind. Other texts are never older.
 */
export function isOlder(next: string, current: string): boolean {
  if (!/^\d+$/.test(current) || !/^\d+$/.test(next)) return false;
  return current.length === next.length ? next < current : next.length < current.length;
}

/** Reports the events of one reflector and its object cache as log lines, health and metrics. */
export interface ReflectorObserver {
  listed(objectCount: number, elapsedMs: number): void;
  /** A watch ended normally. */
  watchClosed(): void;
  /** A list or watch failed and is retried after `retryMs`. */
  failed(failure: RequestFailure, retryMs: number): void;
  /** The server does not support streamed lists. */
  watchListRefused(failure: RequestFailure): void;
  relisting(reason: RelistReason): void;
  /** A list would delete most objects. Its deletions are held until the list after `retryMs` confirms them. */
  heldBack(list: HeldBack, retryMs: number): void;
  /** The server sent something: a number of changes, a bookmark, or the start of a watch. */
  progressed(changes: Readonly<Record<"put" | "delete", number>>): void;
  /** An object is invalid. `problem` is undefined if it was reported before. */
  bad(key: string, problem: string | undefined): void;
  /** `count` parts of an object are invalid and not served. `fresh`: the problems that are new. */
  partsSkipped(key: string, fresh: readonly string[], count: number): void;
  /** An object is valid, but no proxy needs it. */
  skipped(key: string, note: string): void;
}

/**
 * Reasons for another list.
 *
 * - expired: the server no longer has the history after our resourceVersion.
 * - silent: consecutive watches failed, the last one because no data arrived.
 * - refused: consecutive watches failed, the last one for any other reason.
 * - went-back: the server's resourceVersion is older than ours, for example after a restore of etcd.
 * - stale: the server answers again after it did not for `--stale-after`, or is another cluster's.
 * - braked: the deletions of the previous list are held, and a second one must confirm them.
 */
export const relistReasons = ["expired", "silent", "refused", "went-back", "stale", "braked"] as const;

/** Reason why a kind is listed again after its first list. */
type RelistReason = (typeof relistReasons)[number];
