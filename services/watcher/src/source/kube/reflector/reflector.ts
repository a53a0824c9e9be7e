import { Backoff } from "@kpng/process/backoff.ts";
import { waitMs } from "@kpng/process/wait.ts";
import type { RequestFailure } from "../client/request-failure.ts";
import { currentResourceVersion, listPages } from "../request/list-pages.ts";
import { isWatchListRefusal, streamList } from "../request/stream-list.ts";
import { type WatchEnd, type WatchEvent, watchOnce } from "../request/watch-once.ts";
import type { ReflectorOptions } from "./reflector-options.ts";
import { isOlder } from "./resource-version.ts";
import type { RelistReason } from "./source-metrics.ts";

/**
 * Keeps a handler in sync with one collection of the API server, like client-go's reflector. `kubeSource` runs one for
 * each kind.
 *
 * - list: repeated until a list is complete and applied; then watch.
 * - watch: from the resourceVersion of the list. Each watch continues where the previous one ended. After an expired
 *   history (410) or two consecutive failures: list.
 * - check: after a lost connection, compare resource versions. If the server's is older than ours: list; else watch.
 *
 * It never gives up, detects watches that die silently, and never applies part of a list.
 *
 * Separate, because it only decides what to request next: `streamList`, `listPages` and `watchOnce` send the requests,
 * and a `CollectionHandler` takes the objects.
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
