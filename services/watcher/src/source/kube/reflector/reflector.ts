import { Backoff, type BackoffOptions } from "@kpng/process/backoff.ts";
import { waitMs } from "@kpng/process/wait.ts";
import type { KubeConnection } from "../client/connection.ts";
import type { Failure } from "../client/request-failure.ts";
import { currentResourceVersion, type ListEnd, listAll } from "../request/list-pages.ts";
import type { Resource } from "../request/resource.ts";
import { isWatchListRefusal, streamList } from "../request/stream-list.ts";
import { type WatchEnd, type WatchEvent, watchOnce } from "../request/watch-once.ts";
import type { KindHandler } from "./collection-handler.ts";
import type { KindObserver, RelistReason } from "./reflector-observer.ts";
import { wentBack } from "./resource-version.ts";

export interface ReflectorTiming {
  /** Objects per page of a list. Default 500. */
  readonly pageSize?: number | undefined;
  /** Longest time without a byte of a list, in milliseconds. Default 60 000. */
  readonly listSilenceMs?: number | undefined;
  /**
   * The server is asked to end each watch after this long to twice as long, in seconds. Default 30.
   *
   * A kind that does not change gives no byte at all, not even bookmarks, so that only the promised end tells a quiet
   * watch from a dead one. The next watch goes on where this one ended.
   */
  readonly watchSeconds?: number | undefined;
  /** A watch that brings nothing for this long after its promised end is dead, in milliseconds. Default 10 000. */
  readonly overdueMs?: number | undefined;
  /** Wait before the list that must confirm a braked one, in milliseconds. Default 5 000. */
  readonly confirmMs?: number | undefined;
  /** Delays after failures, 0.8 to 30 s. */
  readonly backoff?: BackoffOptions | undefined;
  /** Asks for streamed lists until the server refuses one. Default true. */
  readonly usesWatchList?: boolean | undefined;
}

export interface ReflectorOptions extends ReflectorTiming {
  readonly resource: Resource;
  readonly connection: KubeConnection;
  readonly handler: KindHandler;
  readonly observer: KindObserver;
  /** The kind may be absent or forbidden: it is then asked for again every ten minutes only. */
  readonly isOptional?: boolean | undefined;
}

/** A watch that was answered and lived this long is no failure, even if it brought nothing. */
const livelyMs = 1_000;
/** Watches in a row that end in silence or in a refusal before everything is listed again. */
const maxFruitless = 2;
/** Streamed lists in a row that break off before lists are asked for by pages. */
const maxLostStreams = 2;
const absentRetryMs = 600_000;

/**
 * Keeps a handler equal to a collection of the API server: list, watch from there, resume after a drop, list again when
 * the history is gone. Never gives up, never lets a watch die in silence, never gives the handler half a list.
 */
export class Reflector {
  readonly #options: ReflectorOptions;
  readonly #backoff: Backoff;
  /** Where the next watch begins; undefined: a list is needed. */
  #resourceVersion: string | undefined;
  #usesWatchList: boolean;
  /** False after a paged list expired between two pages: the next one asks for all at once. */
  #usesPages = true;
  /** The last list was braked, and the next one decides. */
  #isConfirming = false;
  /** The connection has failed, so the server may come back as another one, with an older state. */
  #mustProbe = false;
  #fruitlessCount = 0;
  #lostStreams = 0;

  constructor(options: ReflectorOptions) {
    this.#options = options;
    this.#backoff = new Backoff(options.backoff);
    this.#usesWatchList = options.usesWatchList ?? true;
  }

  /** Runs until the signal aborts. Errors: only what the handler throws. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      if (this.#resourceVersion === undefined) await this.#list(signal);
      else if (this.#mustProbe) await this.#probe(this.#resourceVersion, signal);
      else await this.#watch(this.#resourceVersion, signal);
    }
  }

  async #list(signal: AbortSignal): Promise<void> {
    const { connection, handler, resource, observer, confirmMs = 5_000 } = this.#options;
    const { pageSize = 500, listSilenceMs: silenceMs = 60_000, backoff } = this.#options;
    const startedMs = performance.now();
    const list = handler.beginList();
    let objectCount = 0;
    const take = (object: unknown): void => {
      list.add(object);
      objectCount += 1;
    };
    const pages = { pageSize: this.#usesPages ? pageSize : undefined, retryMs: backoff?.minMs };
    // The list that decides about a braked one is read from etcd, not from the same watch cache again.
    const isStreamed = this.#usesWatchList && !this.#isConfirming;
    const request = { ...resource, ...pages, silenceMs };
    const end = await (isStreamed ? streamList : listAll)(connection, request, take, signal);
    if (signal.aborted) return;
    if (end.kind !== "listed") return this.#listFailed(end, isStreamed, signal);
    this.#usesPages = true;
    this.#mustProbe = false;
    this.#lostStreams = 0;
    this.#fruitlessCount = 0;
    const result = list.complete(this.#isConfirming);
    this.#isConfirming = result.kind === "braked";
    if (result.kind === "taken") {
      this.#resourceVersion = end.resourceVersion;
      observer.listed(objectCount, performance.now() - startedMs);
      return;
    }
    observer.braked(result, confirmMs);
    await waitMs(confirmMs, signal);
    observer.relisting("braked");
  }

  async #listFailed(
    end: Exclude<ListEnd, { kind: "listed" }>,
    isStreamed: boolean,
    signal: AbortSignal,
  ): Promise<void> {
    if (!isStreamed) this.#usesPages = end.kind !== "expired";
    else if (isWatchListRefusal(end) || (end.kind === "lost" && ++this.#lostStreams === maxLostStreams)) {
      this.#usesWatchList = false;
      return this.#options.observer.watchListRefused(end);
    }
    await this.#failed(end, signal);
  }

  async #probe(held: string, signal: AbortSignal): Promise<void> {
    const { connection, resource, listSilenceMs: silenceMs = 60_000 } = this.#options;
    const end = await currentResourceVersion(connection, { ...resource, silenceMs }, signal);
    if (signal.aborted) return;
    if (end.kind !== "listed") return this.#failed(end, signal);
    this.#mustProbe = false;
    if (wentBack(held, end.resourceVersion)) this.#relist("went-back");
  }

  async #watch(resourceVersion: string, signal: AbortSignal): Promise<void> {
    const { connection, resource, observer, watchSeconds = 30, overdueMs = 10_000 } = this.#options;
    const timeoutSeconds = Math.ceil(watchSeconds * (1 + Math.random()));
    const silenceMs = timeoutSeconds * 1_000 + overdueMs;
    const startedMs = performance.now();
    const stop = new AbortController();
    const take = (events: readonly WatchEvent[], receivedAtMs: number): void => {
      const isInOrder = this.#take(events, receivedAtMs);
      if (!isInOrder) stop.abort();
    };
    const end = await watchOnce(
      connection,
      { ...resource, query: { resourceVersion }, timeoutSeconds, silenceMs },
      { opened: () => observer.progressed({ put: 0, delete: 0 }), take },
      AbortSignal.any([signal, stop.signal]),
    );
    if (!signal.aborted) await this.#watchEnded(end, performance.now() - startedMs >= livelyMs, signal);
  }

  /** Returns false if the server's state is older than ours: a list is then needed. */
  #take(events: readonly WatchEvent[], receivedAtMs: number): boolean {
    const { handler, observer } = this.#options;
    const changes: WatchEvent[] = [];
    let isInOrder = true;
    for (const event of events) {
      isInOrder = !wentBack(this.#resourceVersion ?? "", event.resourceVersion);
      if (!isInOrder) break;
      this.#resourceVersion = event.resourceVersion;
      if (event.kind !== "bookmark") changes.push(event);
    }
    this.#fruitlessCount = 0;
    this.#backoff.reset();
    const deletedCount = changes.filter(({ kind }) => kind === "delete").length;
    observer.progressed({ put: changes.length - deletedCount, delete: deletedCount });
    if (changes.length > 0) handler.apply(changes, receivedAtMs);
    if (!isInOrder) this.#relist("went-back");
    return isInOrder;
  }

  async #watchEnded(end: WatchEnd, isLively: boolean, signal: AbortSignal): Promise<void> {
    if (end.kind === "closed") {
      this.#options.observer.watchClosed();
      if (isLively) this.#backoff.reset();
      else await waitMs(this.#backoff.nextMs(), signal);
      this.#mustProbe = !isLively;
      return;
    }
    this.#mustProbe = true;
    if (isLively && end.kind === "lost") this.#backoff.reset();
    if (isFruitless(end)) this.#fruitlessCount += 1;
    if (end.kind === "expired") this.#relist("expired");
    else if (this.#fruitlessCount >= maxFruitless) this.#relist(end.kind === "silent" ? "silent" : "refused");
    await this.#failed(end, signal);
  }

  #relist(reason: RelistReason): void {
    this.#resourceVersion = undefined;
    this.#fruitlessCount = 0;
    this.#options.observer.relisting(reason);
  }

  async #failed(failure: Failure, signal: AbortSignal): Promise<void> {
    const { isOptional = false, observer } = this.#options;
    const isAbsent = failure.kind === "refused" && (failure.status === 404 || failure.status === 403);
    const retryMs = isOptional && isAbsent ? absentRetryMs : this.#backoff.nextMs();
    observer.failed(failure, retryMs);
    await waitMs(retryMs, signal);
  }
}

/** A list may mend it; it would fare no better where permission is missing or the server is overloaded. */
function isFruitless(end: Failure): boolean {
  if (end.kind === "refused") return ![401, 403, 429, 503].includes(end.status);
  return end.kind === "silent" || end.kind === "garbled";
}
