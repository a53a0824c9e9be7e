import { Backoff, type BackoffOptions } from "@kpng/process/clock.ts";
import { waitMs } from "@kpng/process/wait.ts";
import type { Kind } from "../source.ts";
import type { KubeConnection, RequestFailure, Resource } from "./connection.ts";
import type { KindReport, RelistReason } from "./kind-report.ts";
import type { ObjectTracker } from "./objects.ts";
import { currentResourceVersion, type ListLimits, listObjects, type WatchEvent, watchOnce } from "./requests.ts";

/**
 * Keeps the objects of one kind in sync with the API server, like client-go's reflector.
 *
 * | State | Does | Next |
 * |---|---|---|
 * | list | lists until a list is complete and applied | watch |
 * | watch | watches from where the list or the previous watch ended | check after a lost connection; list after any other failure that a list may repair, or a request; else watch |
 * | check | compares the server's resourceVersion with ours | list if the server's is older; else watch |
 *
 * Held deletions (see `ObjectTracker`) do not stop the watch: a timer requests the list that confirms or refutes them.
 *
 * It never gives up, detects watches that die silently, and never applies part of a list.
 */
export class Reflector {
  readonly #options: ReflectorOptions;
  readonly #backoff: Backoff;
  /** A list is needed, although the watch can continue. Only a list that begins later satisfies it. */
  #mustList = false;
  /** The connection failed, so the server may have been replaced by one with an older state. */
  #mustCheck = false;
  /** Set while deletions are held. */
  #confirmTimer: NodeJS.Timeout | undefined;
  /** Deletions were held for long enough: the next list confirms or refutes them. */
  #mayConfirm = false;
  /** Ends the current watch. */
  #stopWatch: AbortController | undefined;

  constructor(options: ReflectorOptions) {
    this.#options = options;
    this.#backoff = new Backoff(options.backoff);
  }

  /** True once a list was complete. */
  isListed = false;
  /**
   * False while the objects may not be those of the server: until a requested list, or one after the versions went back,
   * has ended, and while deletions are held.
   */
  isCurrent = true;
  /** The objects are applied up to this version; undefined while a list is needed. */
  resourceVersion: string | undefined;
  /** Why the last request failed; undefined since a list or watch succeeded. */
  failure: RequestFailure | undefined;

  /** Ends the current watch and lists again. */
  requestList(reason: RelistReason): void {
    this.#mustList = true;
    this.isCurrent = false;
    this.#options.report.relisting(reason);
    this.#stopWatch?.abort();
  }

  /** Runs until the signal aborts. Errors: only those of the sink. */
  async run(signal: AbortSignal): Promise<void> {
    signal.addEventListener("abort", () => clearTimeout(this.#confirmTimer), { once: true });
    while (!signal.aborted) {
      const { resourceVersion: from } = this;
      if (from === undefined || this.#mustList) await this.#list(signal);
      else if (this.#mustCheck) await this.#check(from, signal);
      else await this.#watch(from, signal);
    }
  }

  async #list(signal: AbortSignal): Promise<void> {
    const { connection, tracker, resource, report } = this.#options;
    const startedMs = performance.now();
    const isConfirming = this.#mayConfirm;
    const isRequested = this.#mustList;
    this.#mustList = false;
    const list = tracker.beginList();
    let objectCount = 0;
    const add = (object: unknown): void => {
      list.add(object);
      objectCount += 1;
    };
    const end = await listObjects(connection, resource, this.#options, add, signal);
    if (signal.aborted) return;
    if (end.kind !== "listed") {
      this.#mustList ||= isRequested;
      return this.#failed(end, signal);
    }
    const held = list.complete(isConfirming, end.resourceVersion);
    this.#mustCheck = false;
    this.resourceVersion = end.resourceVersion;
    this.isListed = true;
    this.isCurrent = held === undefined && !this.#mustList;
    this.failure = undefined;
    report.listed(objectCount, performance.now() - startedMs);
    this.#setHeld(held !== undefined);
    if (held !== undefined) report.heldBack(held, this.#confirmMs);
  }

  get #confirmMs(): number {
    return this.#options.confirmMs ?? 31_000;
  }

  #setHeld(isHolding: boolean): void {
    if (!isHolding) {
      clearTimeout(this.#confirmTimer);
      this.#confirmTimer = undefined;
      this.#mayConfirm = false;
      return;
    }
    // Meanwhile the watch goes on: additions and updates are not held. Another list before then confirms nothing.
    this.#confirmTimer ??= setTimeout(() => {
      this.#mayConfirm = true;
      this.requestList("braked");
    }, this.#confirmMs);
  }

  async #check(current: string, signal: AbortSignal): Promise<void> {
    const { connection, resource, listSilenceMs } = this.#options;
    const end = await currentResourceVersion(connection, resource, listSilenceMs, signal);
    if (signal.aborted) return;
    if (end.kind !== "listed") return this.#failed(end, signal);
    this.#mustCheck = false;
    if (isOlder(end.resourceVersion, current)) this.#relist("went-back");
  }

  async #watch(resourceVersion: string, signal: AbortSignal): Promise<void> {
    const { connection, resource, report, watchSeconds = 30, overdueMs = 10_000 } = this.#options;
    const timeoutSeconds = Math.ceil(watchSeconds * (1 + Math.random()));
    const silenceMs = timeoutSeconds * 1_000 + overdueMs;
    const startedMs = performance.now();
    const stop = new AbortController();
    this.#stopWatch = stop;
    const opened = (): void => {
      this.failure = undefined;
      report.progressed();
    };
    const receive = (events: readonly WatchEvent[], receivedAtMs: number): void => {
      if (!this.#receive(events, receivedAtMs)) stop.abort();
    };
    const end = await watchOnce(
      connection,
      { ...resource, resourceVersion, timeoutSeconds, silenceMs },
      { opened, receive },
      AbortSignal.any([signal, stop.signal]),
    );
    if (signal.aborted) return;
    const wasHealthy = performance.now() - startedMs >= minHealthyMs;
    if (wasHealthy) this.#backoff.reset();
    if (end.kind === "closed") {
      report.watchClosed();
      if (wasHealthy || stop.signal.aborted) return;
      this.#mustCheck = true;
      return waitMs(this.#backoff.nextMs(), signal);
    }
    const reason = reasonToList(end);
    if (reason === undefined) this.#mustCheck = true;
    else this.#relist(reason);
    await this.#failed(end, signal);
  }

  /** Returns false if the server's state is older than ours. A list is then needed. */
  #receive(events: readonly WatchEvent[], receivedAtMs: number): boolean {
    const { tracker, report } = this.#options;
    const changes: WatchEvent[] = [];
    let version = this.resourceVersion ?? "";
    let isInOrder = true;
    for (const event of events) {
      isInOrder = !isOlder(event.resourceVersion, version);
      if (!isInOrder) break;
      version = event.resourceVersion;
      if (event.kind !== "bookmark") changes.push(event);
    }
    this.resourceVersion = version;
    this.#backoff.reset();
    report.progressed();
    tracker.apply(changes, receivedAtMs, version);
    if (!isInOrder) this.#relist("went-back");
    return isInOrder;
  }

  #relist(reason: RelistReason): void {
    this.resourceVersion = undefined;
    if (reason === "went-back") this.isCurrent = false;
    this.#options.report.relisting(reason);
  }

  async #failed(failure: RequestFailure, signal: AbortSignal): Promise<void> {
    const retryMs = this.#backoff.nextMs();
    this.#options.report.failed(failure, retryMs);
    if (failure.kind !== "expired") this.failure = failure;
    await waitMs(retryMs, signal);
  }
}

/** A watch that stayed open this long is not a failure, even without events. In milliseconds. */
const minHealthyMs = 1_000;

/**
 * Returns why a list may help after a watch that failed; undefined where it would not: the connection broke, a
 * permission is missing or the server is overloaded.
 */
function reasonToList(failure: RequestFailure): RelistReason | undefined {
  if (failure.kind === "expired" || failure.kind === "silent") return failure.kind;
  if (failure.kind === "refused") return [401, 403, 429, 503].includes(failure.status) ? undefined : "refused";
  return failure.kind === "garbled" ? "refused" : undefined;
}

/**
 * Limits and delays of a `Reflector`, which keeps our copy of one collection of the API server up to date. The defaults
 * are those of the program; tests shorten them.
 */
export interface ReflectorTiming extends ListLimits {
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
}

/** Collection that a `Reflector` follows, and where its objects and events go. */
interface ReflectorOptions extends ReflectorTiming {
  readonly resource: Resource;
  readonly connection: KubeConnection;
  readonly tracker: Pick<ObjectTracker<Kind>, "beginList" | "apply">;
  readonly report: KindReport;
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
