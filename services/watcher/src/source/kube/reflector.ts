import { Backoff, type BackoffOptions } from "@kpng/process/backoff.ts";
import { waitMs } from "@kpng/process/wait.ts";
import type { KubeConnection } from "./connection.ts";
import type { Failure } from "./failure.ts";
import type { Braked, KindHandler, ListTaker } from "./handler.ts";
import type { Resource } from "./kinds.ts";
import { listAll } from "./list.ts";
import type { KindObserver, RelistReason } from "./observe.ts";
import { wentBack } from "./resource-version.ts";
import { type WatchEnd, type WatchEvent, watchOnce } from "./watch.ts";
import { isWatchListRefusal, watchListQuery } from "./watch-list.ts";

export interface ReflectorTiming {
  /** Objects per page of a list. Default 500. */
  readonly pageSize?: number | undefined;
  /** Longest silence of a list or watch, in milliseconds. Default 90 000: bookmarks come once a minute. */
  readonly silenceMs?: number | undefined;
  /** A watch lasts from this long to twice as long, in seconds, if nothing breaks it. Default 300. */
  readonly watchSeconds?: number | undefined;
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
/**
 * Watches in a row that end in silence or in a refusal before everything is listed again: a watch from a
 * resourceVersion that the server has yet to reach, because its etcd was restored, is silent for ever.
 */
const maxFruitless = 2;
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
  #fruitlessCount = 0;
  #lostWatchLists = 0;

  constructor(options: ReflectorOptions) {
    this.#options = options;
    this.#backoff = new Backoff(options.backoff);
    this.#usesWatchList = options.usesWatchList ?? true;
  }

  /** Runs until the signal aborts. Errors: only what the handler throws. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      if (this.#resourceVersion !== undefined) await this.#watch(this.#resourceVersion, signal);
      else if (this.#usesWatchList && !this.#isConfirming) await this.#watchFromList(signal);
      else await this.#list(signal);
    }
  }

  async #list(signal: AbortSignal): Promise<void> {
    const { connection, handler, resource, pageSize = 500, silenceMs = 90_000, backoff } = this.#options;
    const startedMs = performance.now();
    const list = handler.beginList();
    let objectCount = 0;
    const take = (object: unknown): void => {
      list.add(object);
      objectCount += 1;
    };
    const pages = { pageSize: this.#usesPages ? pageSize : undefined, retryMs: backoff?.minMs };
    const request = { ...resource, ...pages, silenceMs };
    const end = await listAll(connection, request, take, signal);
    if (signal.aborted) return;
    if (end.kind !== "listed") {
      this.#usesPages = end.kind !== "expired";
      return this.#failed(end, signal);
    }
    this.#usesPages = true;
    const braked = this.#complete(list, end.resourceVersion, objectCount, startedMs);
    if (braked !== undefined) await this.#waitToConfirm(braked, signal);
  }

  /** A watch that begins with the list. */
  async #watchFromList(signal: AbortSignal): Promise<void> {
    const startedMs = performance.now();
    const list = this.#options.handler.beginList();
    let objectCount = 0;
    let braked: Braked | undefined;
    const end = await this.#run(watchListQuery, signal, (event) => {
      if (this.#resourceVersion !== undefined) return "apply";
      if (event.kind === "put") {
        list.add(event.object);
        objectCount += 1;
      } else if (event.kind === "bookmark" && event.endsInitial) {
        braked = this.#complete(list, event.resourceVersion, objectCount, startedMs);
        if (braked !== undefined) return "stop";
      } else if (event.kind === "bookmark") {
        // A server that does not know the parameter began an ordinary watch: its end of the list will never come.
        this.#usesWatchList = false;
        return "stop";
      }
      return "taken";
    });
    if (braked !== undefined) return this.#waitToConfirm(braked, signal);
    if (this.#resourceVersion !== undefined || signal.aborted) return this.#ended(end, startedMs, signal);
    if (end.kind === "closed") return this.#pause(signal);
    if (isWatchListRefusal(end) || end.kind === "silent" || (end.kind === "lost" && ++this.#lostWatchLists === 2)) {
      this.#options.observer.watchListRefused(end);
      this.#usesWatchList = false;
      return;
    }
    await this.#failed(end, signal);
  }

  async #watch(resourceVersion: string, signal: AbortSignal): Promise<void> {
    const startedMs = performance.now();
    const end = await this.#run({ resourceVersion }, signal, () => "apply");
    await this.#ended(end, startedMs, signal);
  }

  /** One watch. `look` sees every event first; those it answers with "apply" go to the handler. */
  async #run(
    query: Readonly<Record<string, string>>,
    signal: AbortSignal,
    look: (event: WatchEvent) => "apply" | "taken" | "stop",
  ): Promise<WatchEnd> {
    const { connection, handler, resource, observer, watchSeconds = 300, silenceMs = 90_000 } = this.#options;
    const timeoutSeconds = Math.ceil(watchSeconds * (1 + Math.random()));
    const stop = new AbortController();
    const take = (events: readonly WatchEvent[]): void => {
      const changes: WatchEvent[] = [];
      for (const event of events) {
        const verdict = stop.signal.aborted ? "stop" : look(event);
        if (verdict === "stop" || (verdict === "apply" && this.#hasGoneBack(event))) stop.abort();
        else if (verdict === "apply") {
          this.#resourceVersion = event.resourceVersion;
          if (event.kind !== "bookmark") changes.push(event);
        }
      }
      this.#fruitlessCount = 0;
      this.#backoff.reset();
      observer.progressed(changes.length);
      if (changes.length > 0) handler.apply(changes);
    };
    const request = { ...resource, query, timeoutSeconds, silenceMs };
    const taker = { opened: () => observer.progressed(0), take };
    return watchOnce(connection, request, taker, AbortSignal.any([signal, stop.signal]));
  }

  #complete(list: ListTaker, resourceVersion: string, objectCount: number, startedMs: number): Braked | undefined {
    const result = list.complete(this.#isConfirming);
    this.#isConfirming = result.kind === "braked";
    if (result.kind === "braked") return result;
    this.#resourceVersion = resourceVersion;
    this.#fruitlessCount = 0;
    this.#lostWatchLists = 0;
    this.#options.observer.listed(objectCount, performance.now() - startedMs);
    return undefined;
  }

  async #waitToConfirm(braked: Braked, signal: AbortSignal): Promise<void> {
    const { observer, confirmMs = 5_000 } = this.#options;
    observer.braked(braked, confirmMs);
    await waitMs(confirmMs, signal);
    observer.relisting("braked");
  }

  /** The end of a watch that had somewhere to begin. */
  async #ended(end: WatchEnd, startedMs: number, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return;
    const isLively = performance.now() - startedMs >= livelyMs;
    if (end.kind === "closed") {
      this.#options.observer.watchClosed();
      if (isLively) this.#backoff.reset();
      else if (this.#resourceVersion !== undefined) await this.#pause(signal);
      return;
    }
    if (isLively && end.kind === "lost") this.#backoff.reset();
    const isFruitless = end.kind === "silent" || end.kind === "garbled" || (end.kind === "refused" && isOdd(end));
    if (isFruitless) this.#fruitlessCount += 1;
    if (end.kind === "expired") this.#relist("expired");
    else if (this.#fruitlessCount >= maxFruitless) this.#relist(end.kind === "silent" ? "silent" : "refused");
    await this.#failed(end, signal);
  }

  #hasGoneBack(event: WatchEvent): boolean {
    if (this.#resourceVersion === undefined || !wentBack(this.#resourceVersion, event.resourceVersion)) return false;
    this.#relist("went-back");
    return true;
  }

  #relist(reason: RelistReason): void {
    this.#resourceVersion = undefined;
    this.#fruitlessCount = 0;
    this.#options.observer.relisting(reason);
  }

  async #failed(failure: Failure, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return;
    const { isOptional = false, observer } = this.#options;
    const isAbsent = failure.kind === "refused" && (failure.status === 404 || failure.status === 403);
    const retryMs = isOptional && isAbsent ? absentRetryMs : this.#backoff.nextMs();
    observer.failed(failure, retryMs);
    await waitMs(retryMs, signal);
  }

  async #pause(signal: AbortSignal): Promise<void> {
    await waitMs(this.#backoff.nextMs(), signal);
  }
}

/** A list would fare no better where permission is missing or the server is overloaded. */
function isOdd(failure: Failure & { readonly kind: "refused" }): boolean {
  return ![401, 403, 429, 503].includes(failure.status);
}
